package containerd

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestUsersOfUserNamespacesPassAndUseNothingElse(t *testing.T) {
	above := filepath.Join(t.TempDir(), "svclet")
	c := Config{Dir: filepath.Join(above, "containerd"), PassableFrom: above}
	create := func(path string, mode fs.FileMode) {
		t.Helper()
		if mode.IsDir() {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode.Perm()); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	create(above, fs.ModeDir|0o750)
	create(c.Dir, fs.ModeDir|0o711)
	create(c.root(), fs.ModeDir|0o711)
	create(c.runDir(), fs.ModeDir|0o711)
	create(c.logFile(), 0o644)
	create(filepath.Join(above, "pods"), fs.ModeDir|0o755)
	create(filepath.Join(above, "kubeconfig"), 0o644)
	if err := os.Symlink("/etc/passwd", filepath.Join(above, "link")); err != nil {
		t.Fatal(err)
	}
	expect := func(path string, want fs.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if err := (Config{Dir: c.Dir}).pass(); err != nil {
		t.Fatal(err)
	}
	expect(above, 0o750) // without user namespaces
	for range 2 {
		if err := c.pass(); err != nil {
			t.Fatal(err)
		}
		expect(above, 0o751)
		expect(c.Dir, 0o711)
		expect(c.root(), 0o711)
		expect(c.runDir(), 0o711)
		expect(c.logFile(), 0o640)
		expect(filepath.Join(above, "pods"), 0o750)
		expect(filepath.Join(above, "kubeconfig"), 0o640)
	}

	// A directory that others use is left as it is.
	create(above, fs.ModeDir|0o755)
	create(filepath.Join(above, "theirs"), 0o644)
	if err := c.pass(); err != nil {
		t.Fatal(err)
	}
	expect(above, 0o755)
	expect(filepath.Join(above, "theirs"), 0o644)
}
