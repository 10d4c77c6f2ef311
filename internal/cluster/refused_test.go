package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/etcd"
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
