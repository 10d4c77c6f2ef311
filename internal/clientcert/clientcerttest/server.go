// Package clientcerttest is for tests of clients whose certificate is renewed: a server
// that tells the name in the certificate, and answers as slowly as the test wants.
package clientcerttest

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Server is an HTTPS server that requires a client certificate of any authority, and
// the files of a client.
type Server struct {
	*httptest.Server
	// Dir has ca.crt, client.crt and client.key.
	Dir string
}

// New starts a server. Handler has the requests of other paths than those of Check; nil
// answers them with 404.
func New(t testing.TB, handler http.Handler) *Server {
	t.Helper()
	s := &Server{Dir: t.TempDir()}
	if handler == nil {
		handler = http.NotFoundHandler()
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("/who", func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, name(req)+"\n") })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, req *http.Request) {
		lines := bufio.NewScanner(req.Body)
		for lines.Scan() {
			_, _ = io.WriteString(w, name(req)+" "+lines.Text()+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	s.Server = httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	s.replace(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	s.Renew(t, "first")
	return s
}

func name(req *http.Request) string { return req.TLS.PeerCertificates[0].DNSNames[0] }

// Renew replaces the client's certificate and key by new ones with a name.
func (s *Server) Renew(t testing.TB, name string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.replace(t, "client.crt", certificate)
	s.replace(t, "client.key", key)
}

func (s *Server) replace(t testing.TB, file string, content []byte) {
	t.Helper()
	file = filepath.Join(s.Dir, file)
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Client returns the connection of the client, which names its files.
func (s *Server) Client() *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(s.Dir, "ca.crt"), CertFile: filepath.Join(s.Dir, "client.crt"), KeyFile: filepath.Join(s.Dir, "client.key"),
	}}
}

// Check renews the certificate while a request of the transport is in flight. That request
// must go on with the old certificate, and another one must have the new one.
func (s *Server) Check(t testing.TB, transport http.RoundTripper) {
	t.Helper()
	reader, writer := io.Pipe()
	defer writer.Close()
	send := func(method, path string, body io.Reader) *bufio.Reader {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewReader(resp.Body)
	}
	expect := func(from *bufio.Reader, want string) {
		t.Helper()
		if line, err := from.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
	}
	go func() { _, _ = io.WriteString(writer, "a\n") }()
	stream := send(http.MethodPut, "/stream", reader)
	expect(stream, "first a")
	s.Renew(t, "second")
	expect(send(http.MethodGet, "/who", http.NoBody), "second")
	go func() { _, _ = io.WriteString(writer, "b\n") }()
	expect(stream, "first b")
}
