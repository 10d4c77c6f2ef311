package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/test/launch"
)

func TestAFullDiskIsNamed(t *testing.T) {
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	defer syscall.Unmount(full, syscall.MNT_DETACH)
	filler, err := os.Create(filepath.Join(full, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	dir := filepath.Join(full, "data")
	if _, err := datadir.Dir(dir).Open(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk under "+dir+" is full: free ") {
		t.Errorf("no room for the lock: %v", err)
	}
	// Some files of the keys and certificates have room, but not all.
	if err := filler.Truncate(32 << 10); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	code := run([]string{"up", "--node=false", "--secure-port=" + port, "--data-dir=" + dir}, &out, &errOut)
	if code != 1 || !strings.HasPrefix(errOut.String(), "svc up: --data-dir: the disk under "+dir+" is full: free ") || strings.Count(errOut.String(), "\n") != 1 {
		t.Errorf("no room for the keys: exit code %d, %s", code, errOut.String())
	}
}

func TestAStartThatIsRefusedForDamagedFilesChangesNothing(t *testing.T) {
	dir := t.TempDir()
	database := filepath.Join(datadir.Dir(dir).Etcd(), "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(database, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := run([]string{"up", "--node=false", "--secure-port=" + port, "--data-dir=" + dir}, &out, &errOut)
	if code != 1 || !strings.HasPrefix(errOut.String(), "svc up: --data-dir: "+database+": corrupt: ") {
		t.Errorf("exit code %d, %s", code, errOut.String())
	}
	for _, path := range []string{datadir.Dir(dir).PKI(), datadir.Dir(dir).AdminFile(), datadir.Dir(dir).ControllersFile()} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made: %v", path, err)
		}
	}
}
