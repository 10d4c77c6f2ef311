package clientcert

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"svc.dev/svc/internal/clientcert/clientcerttest"
)

// write writes a new pair for a name.
func write(t *testing.T, dir, name string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"a.crt": certificate, "a.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file+".new"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, file+".new"), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T) (*Files, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "first")
	f, err := Open(filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key"))
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func nameOf(t *testing.T, pair *tls.Certificate) string {
	t.Helper()
	parsed, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return parsed.DNSNames[0]
}

func TestTheLastGoodPairStaysInUse(t *testing.T) {
	f, dir := open(t)
	for _, step := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"unchanged", func() error { return nil }, "first"},
		{"renewed", func() error { write(t, dir, "second"); return nil }, "second"},
		{"malformed", func() error { return os.WriteFile(filepath.Join(dir, "a.crt"), []byte("half a certifi"), 0o600) }, "second"},
		{"removed", func() error { return os.Remove(filepath.Join(dir, "a.crt")) }, "second"},
		{"mended", func() error { write(t, dir, "third"); return nil }, "third"},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if got := nameOf(t, f.Current()); got != step.want {
			t.Errorf("%s: %q is in use, want %q", step.name, got, step.want)
		}
	}
}

func TestFilesThatAreNoPairAreRefused(t *testing.T) {
	_, dir := open(t)
	if err := os.WriteFile(filepath.Join(dir, "a.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.crt", "missing.crt"} {
		if _, err := Open(filepath.Join(dir, name), filepath.Join(dir, "a.key")); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestARequestInFlightKeepsItsConnection(t *testing.T) {
	s := clientcerttest.New(t, nil)
	config, err := Renewed(s.Client())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	s.Check(t, client.Transport)
}

// An authority may be renewed, too.
func TestAServerIsVerifiedByTheCurrentAuthorities(t *testing.T) {
	s := clientcerttest.New(t, nil)
	file := filepath.Join(s.Dir, "ca.crt")
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := cert.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, other, 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Renewed(s.Client())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	ask := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/who", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask(); err == nil {
		t.Fatal("a server of another authority is accepted")
	}
	if err := os.WriteFile(file+".new", right, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if err := ask(); err != nil {
		t.Errorf("after the renewal of the authority: %v", err)
	}
}

func TestConnectionsWithoutFilesStayAsTheyAre(t *testing.T) {
	for name, config := range map[string]*rest.Config{
		"a token":     {Host: "https://server", BearerToken: "a"},
		"certificate": {Host: "https://server", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("a"), KeyData: []byte("b")}},
		"transport":   {Host: "https://server", Transport: http.DefaultTransport},
	} {
		if got, err := Renewed(config); err != nil || got != config {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
