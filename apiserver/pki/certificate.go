package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// want is the desired state of a certificate.
type want struct {
	name     string
	template x509.Certificate
	lifetime time.Duration
	// renewal is how long before its expiry a certificate is replaced.
	renewal time.Duration
}

// clockSkew is how long before now the validity of a certificate begins, for
// clients whose clocks are behind.
const clockSkew = time.Hour

// reissue is a reason to replace a valid certificate.
type reissue struct {
	reason string
	holds  func(have, authority *x509.Certificate, w want, now time.Time) bool
}

var reissues = []reissue{
	{"it expires soon", func(have, _ *x509.Certificate, w want, now time.Time) bool {
		return now.Add(w.renewal).After(have.NotAfter)
	}},
	{"it is not valid yet: the clock was set back", func(have, _ *x509.Certificate, _ want, now time.Time) bool {
		return now.Before(have.NotBefore)
	}},
	{"its subject has changed", func(have, _ *x509.Certificate, w want, _ time.Time) bool {
		return have.Subject.String() != w.template.Subject.String()
	}},
	{"the server has a new name or address", func(have, _ *x509.Certificate, w want, _ time.Time) bool {
		return lacksName(have, &w.template)
	}},
	{"it has the name of API servers, which a node must not have", func(have, _ *x509.Certificate, w want, _ time.Time) bool {
		return slices.Contains(have.DNSNames, apiServerName) && !slices.Contains(w.template.DNSNames, apiServerName)
	}},
	{"its authority was renewed with another name or key identifier", func(have, authority *x509.Certificate, w want, _ time.Time) bool {
		return !w.template.IsCA && !namesIssuer(have, authority)
	}},
}

// namesIssuer reports whether a certificate names an authority as its issuer. Verifiers
// find the authority by its encoded name, and some compare the identifier of its key if
// both certificates have it (RFC 5280, sections 4.1.2.4 and 4.2.1.1).
func namesIssuer(have, authority *x509.Certificate) bool {
	return bytes.Equal(have.RawIssuer, authority.RawSubject) &&
		(len(have.AuthorityKeyId) == 0 || len(authority.SubjectKeyId) == 0 || bytes.Equal(have.AuthorityKeyId, authority.SubjectKeyId))
}

// lacksName reports whether a name of w is missing in have. Additional names in
// have are accepted: otherwise each change of an address would replace it twice.
func lacksName(have, w *x509.Certificate) bool {
	for _, name := range w.DNSNames {
		if !slices.Contains(have.DNSNames, name) {
			return true
		}
	}
	for _, ip := range w.IPAddresses {
		if !slices.ContainsFunc(have.IPAddresses, ip.Equal) {
			return true
		}
	}
	return false
}

// ensure returns the pair that w describes, signed by by or, if by is nil, by
// itself. It makes the files if they do not exist. If there is a reason for a new
// certificate, it makes one and returns the reason.
func (p *PKI) ensure(w want, by *pair) (got *pair, reason string, err error) {
	have, err := readCertificate(p.Certificate(w.name))
	if err != nil {
		return nil, "", err
	}
	needs := ""
	if have != nil {
		needs = p.Certificate(w.name)
	}
	key, err := p.key(w.name, needs)
	if err != nil {
		return nil, "", err
	}
	if by == nil {
		by = &pair{certificate: have, key: key}
		if have != nil {
			// Users may bring an authority of any name. The certificates that it has signed
			// contain the encoded name and the key identifier, so a renewal keeps both.
			w.template.Subject, w.template.RawSubject = have.Subject, have.RawSubject
			w.template.SubjectKeyId = have.SubjectKeyId
		}
	}
	if have == nil {
		reason = "it did not exist"
	} else {
		if err := p.belongs(have, key, by, w); err != nil {
			return nil, "", err
		}
		for _, r := range reissues {
			if r.holds(have, by.certificate, w, p.cfg.Clock.Now()) {
				reason = r.reason
				break
			}
		}
	}
	if reason == "" {
		return &pair{have, key}, "", nil
	}
	made, err := issue(w, key, by, p.cfg.Clock.Now())
	if err != nil {
		return nil, "", fmt.Errorf("make %s: %w", p.Certificate(w.name), err)
	}
	content, err := cert.EncodeCertificates(made)
	if err != nil {
		return nil, "", fmt.Errorf("make %s: %w", p.Certificate(w.name), err)
	}
	return &pair{made, key}, reason, writeFile(p.Certificate(w.name), content)
}

// belongs returns an error unless have is a certificate of key that by has issued.
func (p *PKI) belongs(have *x509.Certificate, key crypto.Signer, by *pair, w want) error {
	path := p.Certificate(w.name)
	if !samePublicKey(have.PublicKey, key.Public()) {
		return fmt.Errorf("%s is not the certificate of %s: put back the one that belongs to it, or remove it to have a new one made", path, p.Key(w.name))
	}
	if w.template.IsCA && !have.IsCA {
		return fmt.Errorf("%s is not a certificate authority: put back the one that was there, or remove it to have a new one made", path)
	}
	if err := have.CheckSignatureFrom(by.certificate); err != nil {
		return fmt.Errorf("%s was not signed by %q: put back the certificates that belong together, or remove it to have a new one made (%w)", path, by.certificate.Subject.CommonName, err)
	}
	return nil
}

func issue(w want, key crypto.Signer, by *pair, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generate a serial number: %w", err)
	}
	template := w.template
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore = now.Add(-clockSkew).UTC()
	template.NotAfter = now.Add(w.lifetime).UTC()
	parent := by.certificate
	if w.template.IsCA {
		parent = &template
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// readCertificate returns nil when there is no file.
func readCertificate(path string) (*x509.Certificate, error) {
	content, err := readFile(path)
	if err != nil || content == nil {
		return nil, err
	}
	certs, err := cert.ParseCertsPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a certificate: put back the one that was there, or remove it to have a new one made (%w)", path, err)
	}
	return certs[0], nil
}

// key returns the private key of name. If it does not exist, it makes the key,
// unless needs names a file that belongs to the missing key.
func (p *PKI) key(name, needs string) (crypto.Signer, error) {
	path := p.Key(name)
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if content == nil {
		if needs != "" {
			return nil, fmt.Errorf("%s is missing, though %s exists: put back the key, or remove that file to have new ones made", path, needs)
		}
		return makeKey(path)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not a private key: put back the one that was there, or remove it and what was made with it (%w)", path, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s has a key of type %T, which cannot sign: put back an ECDSA or RSA key", path, parsed)
	}
	return key, nil
}

func makeKey(path string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	content, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return key, writeFile(path, content)
}

// ensureKeyPair makes a key without a certificate, and its public half.
func (p *PKI) ensureKeyPair(name string) error {
	public, err := readFile(p.PublicKey(name))
	if err != nil {
		return err
	}
	needs := ""
	if public != nil {
		needs = p.PublicKey(name)
	}
	key, err := p.key(name, needs)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("make %s: %w", p.PublicKey(name), err)
	}
	content := encodePublicKey(der)
	if bytes.Equal(content, public) {
		return nil
	}
	if public != nil {
		return fmt.Errorf("%s is not the public key of %s: put back the one that belongs to it, or remove it to have it made again", p.PublicKey(name), p.Key(name))
	}
	return writeFile(p.PublicKey(name), content)
}

func samePublicKey(a, b crypto.PublicKey) bool {
	known, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && known.Equal(b)
}
