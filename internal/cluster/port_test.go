package cluster

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	genericoptions "k8s.io/apiserver/pkg/server/options"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/datadir"
)

func TestAPortThatIsInUseLeavesNoDataDirectory(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort = net.IPv4(127, 0, 0, 1), listener.Addr().(*net.TCPAddr).Port
	dir := filepath.Join(t.TempDir(), "data")
	c := &Cluster{Config: Config{Dir: datadir.Dir(dir), Server: &options.Options{SecureServing: serving}}}
	if err := c.Run(t.Context(), func(Report) { t.Error("it has started") }); err == nil || !strings.HasPrefix(err.Error(), "--secure-port: ") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}
