package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFilesForContainersAreReadableByAllUsers(t *testing.T) {
	before := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(before) })
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	files := good(map[string]string{"proc/self/oom_score_adj": "0"})
	for _, problem := range Prepare(t.Context(), Options{Root: machine(t, files), MaxOpenFiles: int64(limit.Cur)}) {
		t.Log(problem)
	}
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(file); err != nil || stat.Mode().Perm() != 0o644 {
		t.Errorf("it has the mode %v (%v)", stat.Mode(), err)
	}
}
