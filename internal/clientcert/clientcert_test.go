package clientcert

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
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
	f, dir := open(t)
	more := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Client", req.TLS.PeerCertificates[0].DNSNames[0])
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		if req.URL.Path == "/slow" {
			<-more
			_, _ = io.WriteString(w, "b")
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := New(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, f.Current)
	defer transport.CloseIdleConnections()
	get := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	slow := get("/slow")
	write(t, dir, "second")
	if client := get("/").Header.Get("Client"); client != "second" {
		t.Errorf("a new request has the certificate of %q", client)
	}
	close(more)
	content, err := io.ReadAll(slow.Body)
	if err != nil || string(content) != "ab" || slow.Header.Get("Client") != "first" {
		t.Errorf("the request in flight got %q of %q, %v", content, slow.Header.Get("Client"), err)
	}
}
