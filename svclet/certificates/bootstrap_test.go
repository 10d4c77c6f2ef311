package certificates

import (
	"os"
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
