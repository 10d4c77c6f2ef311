package pki

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func verify(t *testing.T, c *x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) {
	t.Helper()
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Errorf("%s: %v", c.Subject, err)
	}
}

// environment is a directory, a clock and a machine.
type environment struct {
	cfg   Config
	clock *clocktesting.FakeClock
	names []string
}

func newEnvironment(t *testing.T) *environment {
	dir := t.TempDir()
	e := &environment{clock: clocktesting.NewFakeClock(start), names: []string{"machine", "192.0.2.7"}}
	e.cfg = Config{
		Dir:        filepath.Join(dir, "pki"),
		Names:      func() ([]string, error) { return e.names, nil },
		ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)},

		ConnectionFile:  filepath.Join(dir, "admin.svcconfig"),
		ControllersFile: filepath.Join(dir, "controller-manager.svcconfig"),
		Server:          "https://127.0.0.1:6443",
		Clock:           e.clock,
	}
	return e
}

func (e *environment) open(t *testing.T) *PKI {
	t.Helper()
	p, err := Open(e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (e *environment) path(file string) string { return filepath.Join(e.cfg.Dir, file) }

func (e *environment) certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	certs, err := cert.CertsFromFile(e.path(name + ".crt"))
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func (e *environment) read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(e.path(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (e *environment) write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(e.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path(file), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *environment) remove(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		if err := os.Remove(e.path(file)); err != nil {
			t.Fatal(err)
		}
	}
}

// all returns the content of every file, that of the connection files under
// "connection" and "controllers".
func (e *environment) all(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(e.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		files[entry.Name()] = e.read(t, entry.Name())
	}
	for name, file := range map[string]string{"connection": e.cfg.ConnectionFile, "controllers": e.cfg.ControllersFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(content)
	}
	return files
}
