package cluster

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/datadir"
)

func TestAStartThatIsRefusedForItsDatabaseWritesNoKeysAndNoKubeconfigs(t *testing.T) {
	dir := datadir.Dir(filepath.Join(t.TempDir(), "data"))
	database := filepath.Join(dir.Etcd(), "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(database, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := configured(t, dir, clock.RealClock{})
	if err := cluster.Run(t.Context(), func(Report) { t.Error("it has started") }); !errors.Is(err, etcd.ErrCorrupt) {
		t.Errorf("the error is %v", err)
	}
	for _, path := range []string{dir.PKI(), dir.AdminFile(), dir.ControllersFile()} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTheAuthorityOfTheClusterIsNoneOfFrontProxiesWithoutTheirNames(t *testing.T) {
	keys, err := pki.Open(pki.Config{Dir: t.TempDir(), ServiceIPs: []net.IP{net.IPv4(10, 96, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	s := &apiServer{options: options.New(), keys: &certificates{PKI: keys}}
	s.options.ServiceAccounts.Issuers = []string{"https://issuer"}
	s.options.Authentication.RequestHeader.ClientCAFile = keys.Certificate("ca")
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--requestheader-client-ca-file: "+keys.Certificate("ca")) {
		t.Errorf("the error is %v", err)
	}
}
