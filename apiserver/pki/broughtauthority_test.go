package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// companyName returns a name as OpenSSL encodes it: UTF8Strings, in the order of its
// configuration, with attributes that pkix.Name has no fields for.
func companyName(t *testing.T) []byte {
	t.Helper()
	attribute := func(tag int, value string, id ...int) pkix.RelativeDistinguishedNameSET {
		return pkix.RelativeDistinguishedNameSET{{Type: id, Value: asn1.RawValue{Tag: tag, Bytes: []byte(value)}}}
	}
	name, err := asn1.Marshal(pkix.RDNSequence{
		attribute(asn1.TagIA5String, "example", 0, 9, 2342, 19200300, 100, 1, 25), // DC
		attribute(asn1.TagUTF8String, "the company", 2, 5, 4, 3),
		attribute(asn1.TagUTF8String, "of mine", 2, 5, 4, 10),
		attribute(asn1.TagIA5String, "ca@example.com", 1, 2, 840, 113549, 1, 9, 1), // emailAddress
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// bringAuthority writes an authority as a user does before the first start.
func bringAuthority(t *testing.T, e *environment, lifetime time.Duration) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		RawSubject: companyName(t), SubjectKeyId: []byte("of the company"), SerialNumber: big.NewInt(1),
		NotBefore: start.Add(-day), NotAfter: start.Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, e, "ca", certificate)
	e.write(t, "ca.key", string(pem))
	return &pair{certificate, key}
}

func writeCertificate(t *testing.T, e *environment, name string, certificate *x509.Certificate) {
	t.Helper()
	content, err := cert.EncodeCertificates(certificate)
	if err != nil {
		t.Fatal(err)
	}
	e.write(t, name+".crt", string(content))
}

// checkIssued verifies a certificate by an authority at the time of e, and that it names
// the authority's key, which verifiers other than Go's check.
func checkIssued(t *testing.T, e *environment, what string, certificate, authority *x509.Certificate) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	opts := x509.VerifyOptions{Roots: roots, CurrentTime: e.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := certificate.Verify(opts); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if !bytes.Equal(certificate.AuthorityKeyId, authority.SubjectKeyId) {
		t.Errorf("%s: issued by the key %x, not by %x", what, certificate.AuthorityKeyId, authority.SubjectKeyId)
	}
}

func TestARenewedAuthorityOfAUserKeepsItsName(t *testing.T) {
	e := newEnvironment(t)
	brought := bringAuthority(t, e, authorityLifetime).certificate
	content := e.read(t, "ca.crt")
	e.open(t)
	if e.read(t, "ca.crt") != content {
		t.Error("it was replaced")
	}
	e.clock.SetTime(brought.NotAfter.Add(-day))
	e.open(t)
	got := e.certificate(t, "ca")
	if !got.NotAfter.After(brought.NotAfter) {
		t.Errorf("not renewed: valid until %s", got.NotAfter)
	}
	if !bytes.Equal(got.RawSubject, brought.RawSubject) {
		t.Errorf("renewed as %q, want %q", got.RawSubject, brought.RawSubject)
	}
	if !bytes.Equal(got.SubjectKeyId, brought.SubjectKeyId) {
		t.Errorf("renewed with the key identifier %x, want %x", got.SubjectKeyId, brought.SubjectKeyId)
	}
}

func TestCertificatesStayValidWhenTheAuthorityOfAUserIsRenewed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		lifetime time.Duration
		after    time.Duration
	}{
		{"while it is in use", authorityLifetime, authorityLifetime - authorityRenewal + day},
		{"at the first start", authorityRenewal - day, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnvironment(t)
			brought := bringAuthority(t, e, tc.lifetime)
			other := client("other", "other")
			other.lifetime = tc.lifetime
			old, err := issue(other, brought.key, brought, start)
			if err != nil {
				t.Fatal(err)
			}
			e.open(t)
			e.clock.SetTime(start.Add(tc.after))
			e.open(t)
			renewed := e.certificate(t, "ca")
			if renewed.Equal(brought.certificate) {
				t.Fatal("the authority was not renewed")
			}
			checkIssued(t, e, "before the renewal, by the renewed authority", old, renewed)
			checkIssued(t, e, "after the renewal, by the former authority", e.certificate(t, "admin"), brought.certificate)
		})
	}
}

// TestCertificatesThatDoNotNameTheirAuthorityAreReplaced opens a directory whose authority
// was renewed with another encoding of its name, or another identifier of its key, as
// former versions of svc did.
func TestCertificatesThatDoNotNameTheirAuthorityAreReplaced(t *testing.T) {
	for _, tc := range []struct {
		name  string
		renew func(w *want, brought *x509.Certificate)
	}{
		{"another encoding", func(w *want, brought *x509.Certificate) {
			w.template.Subject, w.template.SubjectKeyId = brought.Subject, brought.SubjectKeyId
		}},
		{"another key identifier", func(w *want, brought *x509.Certificate) {
			w.template.RawSubject = brought.RawSubject
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnvironment(t)
			brought := bringAuthority(t, e, authorityLifetime)
			e.open(t)
			renewal := authority("ca", "svc-ca")
			tc.renew(&renewal, brought.certificate)
			renewed, err := issue(renewal, brought.key, brought, start)
			if err != nil {
				t.Fatal(err)
			}
			writeCertificate(t, e, "ca", renewed)
			e.open(t)
			if !e.certificate(t, "ca").Equal(renewed) {
				t.Error("the authority was replaced")
			}
			for _, leaf := range []string{"apiserver", "admin", "controller-manager", "svc-up", "apiserver-kubelet-client"} {
				checkIssued(t, e, leaf, e.certificate(t, leaf), renewed)
			}
			before := e.all(t)
			e.open(t)
			for file, content := range e.all(t) {
				if before[file] != content {
					t.Errorf("%s was replaced again", file)
				}
			}
		})
	}
}
