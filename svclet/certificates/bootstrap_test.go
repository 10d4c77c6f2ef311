package certificates

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// A power failure can leave a file empty that was not synced.
func TestBootstrapWritesAConnectionFileThatIsEmpty(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	if err := os.WriteFile(b.Connection, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if api, err := clientcmd.BuildConfigFromFlags("", b.Connection); err != nil || api.Host != server.URL {
		t.Errorf("the connection file has the server %v, %v", api, err)
	}
}

func TestBootstrapMakesTheDirectoryOfCertificates(t *testing.T) {
	b := newAPIServer(t).bootstrap(t, t.TempDir())
	b.Dir = filepath.Join(b.Dir, "lib", "pki")
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, clientPair+"-current.pem")); err != nil {
		t.Error(err)
	}
}

// A full disk or a power failure can leave the file of the key empty, or without its end.
func TestBootstrapReplacesADamagedKey(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "cut off": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE", "no key": "key\n"} {
		t.Run(name, func(t *testing.T) {
			server, dir := newAPIServer(t), t.TempDir()
			b := server.bootstrap(t, dir)
			key := filepath.Join(b.Dir, clientPair+".key.tmp")
			if err := errors.Join(os.MkdirAll(b.Dir, 0o700), os.WriteFile(key, []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := b.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if api, err := clientcmd.BuildConfigFromFlags("", b.Connection); err != nil || api.Host != server.URL {
				t.Errorf("the connection file has the server %v, %v", api, err)
			}
			if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the key of the request is left: %v", err)
			}
		})
	}
}

// A disk may be full for a moment. In a fleet an administrator approves each request.
func TestBootstrapSendsNoOtherRequestAfterItsConnectionFileCouldNotBeWritten(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	written := b.Connection
	b.Connection = filepath.Join(dir, strings.Repeat("a", 255)) // too long for the file that replaces it
	if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--svcconfig: ") {
		t.Fatalf("the error is %v", err)
	}
	b.Connection = written
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent := server.sent(); len(sent) != 1 {
		t.Errorf("%d requests were sent", len(sent))
	}
	if _, err := os.Stat(filepath.Join(dir, clientPair+".key.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key of the request is left: %v", err)
	}
}
