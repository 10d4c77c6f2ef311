package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

func TestAReachedQuotaIsReportedAndARestartReclaimsDeletedSpace(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Quota: 4 << 20}
	s := start(t, cfg)
	c := reachQuota(t, s)
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "quota of 4 MiB") {
		t.Fatalf("Check returned %v", err)
	}
	// As the API server deletes, which cannot compact now.
	if _, err := c.Txn(t.Context()).Then(clientv3.OpDelete("key-", clientv3.WithPrefix())).Commit(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := etcd3.Compact(t.Context(), c, 0, 0); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("the compaction of the API server returned %v", err)
	}
	s.Stop()

	s = start(t, cfg)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check after the restart: %v", err)
	}
	if size := s.member.Server.Backend().Size(); size > 1<<20 {
		t.Errorf("the database has %d bytes after the restart", size)
	}
	put(t, s, "key", "value")
}

func TestARestartWithNothingToReclaimReportsTheQuotaAgain(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Quota: 4 << 20}
	s := start(t, cfg)
	reachQuota(t, s)
	s.Stop()
	cfg.Quota = 1 << 20 // so that the objects that are left reach it
	for range 2 {       // the second time, the history is compacted already
		s = start(t, cfg)
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "quota of 1 MiB") {
			t.Errorf("Check returned %v", err)
		}
		if got := get(t, s, "key-0"); got == "" {
			t.Error("an object is lost")
		}
		s.Stop()
	}
}

func TestAFullDatabaseIsServedIfItsDiskCannotHoldACopy(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Quota: 4 << 20}
	s := start(t, cfg)
	reachQuota(t, s)
	s.Stop()
	small := mountBesideDatabase(t, cfg.Dir)
	copies := func() []string {
		t.Helper()
		left, err := filepath.Glob(filepath.Join(small, "db.tmp*"))
		if err != nil {
			t.Fatal(err)
		}
		return left
	}

	s = start(t, cfg)
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "quota of 4 MiB") {
		t.Errorf("Check returned %v", err)
	}
	if got := get(t, s, "key-0"); got == "" {
		t.Error("an object is lost")
	}
	if left := copies(); len(left) > 0 {
		t.Errorf("a copy that failed is left: %v", left)
	}
	if _, err := client(t, s).Delete(t.Context(), "key-", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	s.Stop()

	write(t, filepath.Join(small, "db.tmp.1"), "")
	s = start(t, cfg) // with space for what is left
	put(t, s, "key", "value")
	if left := copies(); len(left) > 0 {
		t.Errorf("a copy that was interrupted is left: %v", left)
	}
}

// mountBesideDatabase moves the directory of a member's database to a file system that has
// 1 MiB beside it, and returns that directory.
func mountBesideDatabase(t *testing.T, dir string) string {
	t.Helper()
	snap := filepath.Join(dir, "member", "snap")
	moved := snap + ".moved"
	if err := os.Rename(snap, moved); err != nil {
		t.Fatal(err)
	}
	db, err := os.Stat(filepath.Join(moved, "db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(snap, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", snap, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", db.Size()+1<<20)); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(snap, syscall.MNT_DETACH) })
	if err := os.CopyFS(snap, os.DirFS(moved)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(moved); err != nil {
		t.Fatal(err)
	}
	return snap
}

// reachQuota writes keys that begin with key- until the quota is reached.
func reachQuota(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c := client(t, s)
	var err error
	// The database grows when it commits its collected writes.
	for i, began := 0, time.Now(); err == nil && time.Since(began) < time.Minute; i++ {
		_, err = c.Put(t.Context(), fmt.Sprintf("key-%d", i), strings.Repeat("x", 200<<10))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("writing beyond the quota gives %v", err)
	}
	return c
}
