package hostcerts

import (
	"bytes"
	"crypto/x509"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var service = types.NamespacedName{Namespace: "svc-system", Name: "svc-apiserver"}

const serviceHost = "svc-apiserver.svc-system.svc"

// mustRenew returns renewed data and whether it differs.
func mustRenew(t *testing.T, b bundle, have map[string][]byte, now time.Time) (map[string][]byte, []string) {
	t.Helper()
	data, reasons, err := b.renew(have, now)
	if err != nil {
		t.Fatal(err)
	}
	return data, reasons
}

// verify returns the error of a client that trusts the authorities of one Secret about
// the serving certificate of another.
func verify(t *testing.T, trusted, served map[string][]byte, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted[authoritiesKey]) {
		t.Fatal("no authorities")
	}
	have, err := readPair(served, servingName)
	if err != nil {
		t.Fatal(err)
	}
	_, err = have.certificate.Verify(x509.VerifyOptions{DNSName: serviceHost, Roots: roots, CurrentTime: now})
	return err
}

func TestANewSecretHasACertificateOfItsAuthority(t *testing.T) {
	data, reasons := mustRenew(t, servingBundle(service), nil, start)
	if len(reasons) != 2 {
		t.Errorf("reasons %q, want one for the authority and one for the certificate", reasons)
	}
	if err := verify(t, data, data, start); err != nil {
		t.Error(err)
	}
	again, reasons := mustRenew(t, servingBundle(service), data, start)
	if len(reasons) > 0 || !maps.EqualFunc(data, again, bytes.Equal) {
		t.Errorf("changed again: %q", reasons)
	}
}

// Thirty years, in which authorities and certificates are replaced many times, while
// clients and servers are up to five days behind.
func TestEveryClientTrustsEveryCertificateWhileAuthoritiesAreReplaced(t *testing.T) {
	b := servingBundle(service)
	const step = 5 * 24 * time.Hour
	data, _ := mustRenew(t, b, nil, start)
	authorities, certificates := map[string]bool{}, map[string]bool{}
	for now := start; now.Before(start.AddDate(30, 0, 0)); now = now.Add(step) {
		next, reasons := mustRenew(t, b, data, now)
		for what, pair := range map[string][2]map[string][]byte{
			"present client and server": {next, next}, "late client": {data, next}, "late server": {next, data},
		} {
			if err := verify(t, pair[0], pair[1], now); err != nil {
				t.Fatalf("%s at %s after %q: %v", what, now, reasons, err)
			}
		}
		data = next
		authorities[string(data[signerName+".crt"])] = true
		certificates[string(data[servingName+".crt"])] = true
		if got := bytes.Count(data[authoritiesKey], []byte("BEGIN")); got > 2 {
			t.Fatalf("%d authorities are trusted at %s, want at most 2", got, now)
		}
	}
	if len(authorities) < 3 || len(certificates) < 100 {
		t.Errorf("%d authorities and %d certificates in 30 years: too few were replaced", len(authorities), len(certificates))
	}
}

func TestNothingIsRenewedBeforeTheTimeThatIsReturned(t *testing.T) {
	b := servingBundle(service)
	now := start
	data, _ := mustRenew(t, b, nil, now)
	for now.Before(start.AddDate(12, 0, 0)) {
		next, err := b.nextRenewal(data)
		if err != nil {
			t.Fatal(err)
		}
		if !next.After(now) {
			t.Fatalf("at %s, the next renewal is at %s", now, next)
		}
		if _, reasons := mustRenew(t, b, data, next.Add(-time.Minute)); len(reasons) > 0 {
			t.Fatalf("renewed before %s: %q", next, reasons)
		}
		var reasons []string
		now = next.Add(time.Second)
		if data, reasons = mustRenew(t, b, data, now); len(reasons) == 0 {
			t.Fatalf("nothing renewed at %s", now)
		}
	}
}

func TestAuthorityThatExpiredWhileNoServerRanIsReplaced(t *testing.T) {
	b := servingBundle(service)
	data, _ := mustRenew(t, b, nil, start)
	later := start.Add(authorityLifetime + time.Hour)
	data, _ = mustRenew(t, b, data, later)
	if err := verify(t, data, data, later); err != nil {
		t.Error(err)
	}
	if got := bytes.Count(data[authoritiesKey], []byte("BEGIN")); got != 1 {
		t.Errorf("%d authorities are trusted, want 1", got)
	}
}

func TestSuccessorDoesNotSignBeforeClientsCanTrustIt(t *testing.T) {
	b := servingBundle(service)
	data, _ := mustRenew(t, b, nil, start)
	// No server ran in the year between the two steps.
	late := start.Add(authorityLifetime - successorSigns/2)
	staged, _ := mustRenew(t, b, data, late)
	if !bytes.Equal(staged[signerName+".crt"], data[signerName+".crt"]) || staged[successorName+".crt"] == nil {
		t.Fatal("want the old authority to sign, and a successor")
	}
	if err := verify(t, data, staged, late); err != nil {
		t.Error(err)
	}
	promoted, _ := mustRenew(t, b, staged, late.Add(handover+time.Second))
	if !bytes.Equal(promoted[signerName+".crt"], staged[successorName+".crt"]) || promoted[successorName+".crt"] != nil {
		t.Error("want the successor to sign")
	}
}

func TestCertificateIsReplacedForAReason(t *testing.T) {
	b := servingBundle(service)
	data, _ := mustRenew(t, b, nil, start)
	other, _ := mustRenew(t, b, nil, start)
	without := maps.Clone(data)
	delete(without, "tls.crt")
	delete(without, "tls.key")
	foreign := maps.Clone(data)
	foreign["tls.crt"], foreign["tls.key"] = other["tls.crt"], other["tls.key"]
	renamed := servingBundle(types.NamespacedName{Namespace: "other", Name: "svc-apiserver"})
	for name, test := range map[string]struct {
		bundle bundle
		have   map[string][]byte
		now    time.Time
		want   string
	}{
		"missing":           {b, without, start, "tls.crt: it does not exist"},
		"other authority":   {b, foreign, start, "tls.crt: another authority has signed it"},
		"last third":        {b, data, start.Add(leafLifetime - leafRenewal + time.Minute), "tls.crt: it expires soon"},
		"another host name": {renamed, data, start, "tls.crt: it lacks the host name svc-apiserver.other.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			_, reasons := mustRenew(t, test.bundle, test.have, test.now)
			if len(reasons) != 1 || reasons[0] != test.want {
				t.Errorf("reasons %q, want %q", reasons, test.want)
			}
		})
	}
}

func TestServersWithDifferentEtcdMembersShareACertificate(t *testing.T) {
	one, err := etcdBundle([]string{"https://etcd-0.etcd:2379"})
	if err != nil {
		t.Fatal(err)
	}
	three, err := etcdBundle([]string{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379", "https://10.0.0.3:2379"})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := mustRenew(t, one, nil, start)
	data, reasons := mustRenew(t, three, data, start)
	if len(reasons) != 1 {
		t.Errorf("reasons %q, want that the certificate of the members lacks hosts", reasons)
	}
	for name, b := range map[string]bundle{"one": one, "three": three} {
		if _, reasons := mustRenew(t, b, data, start); len(reasons) > 0 {
			t.Errorf("the server with %s replaces it again: %q", name, reasons)
		}
	}
}

func TestEtcdsClientHasNoRightsOfAServer(t *testing.T) {
	b, err := etcdBundle([]string{"https://etcd:2379"})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := mustRenew(t, b, nil, start)
	for name, want := range map[string]x509.ExtKeyUsage{etcdClientName: x509.ExtKeyUsageClientAuth, etcdServerName: x509.ExtKeyUsageServerAuth} {
		have, err := readPair(data, name)
		if err != nil {
			t.Fatal(err)
		}
		if usages := have.certificate.ExtKeyUsage; len(usages) != 1 || usages[0] != want {
			t.Errorf("%s.crt is for %v, want %v", name, usages, want)
		}
	}
}

func TestBrokenSecretIsAnError(t *testing.T) {
	b := servingBundle(service)
	data, _ := mustRenew(t, b, nil, start)
	other, _ := mustRenew(t, b, nil, start)
	for name, test := range map[string]struct {
		key     string
		content []byte
		want    string
	}{
		"certificate":          {"tls.crt", []byte("x"), "tls.crt: "},
		"key":                  {"tls.key", []byte("x"), "tls.key: "},
		"key of another":       {"tls.key", other["tls.key"], "tls.key is not the key of tls.crt"},
		"authorities":          {"ca.crt", []byte("x"), "ca.crt: "},
		"other authorities":    {"ca.crt", other["ca.crt"], "ca.crt lacks the authority"},
		"key of the authority": {"signer.key", nil, "signer.key: "},
	} {
		t.Run(name, func(t *testing.T) {
			broken := maps.Clone(data)
			broken[test.key] = test.content
			_, _, err := b.renew(broken, start)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s...", err, test.want)
			}
		})
	}
}
