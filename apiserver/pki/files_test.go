package pki

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOnlyTheOwnerHasAccessToFiles(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	if err := os.Chmod(e.path("ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.open(t)
	err := filepath.WalkDir(e.cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnInvalidFileIsNamedAndNotOverwritten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, e *environment)
		file   string
		says   string
	}{
		{"a half-written certificate", func(t *testing.T, e *environment) {
			e.write(t, "ca.crt", e.read(t, "ca.crt")[:300])
		}, "ca.crt", "is not a certificate"},
		{"an empty certificate", func(t *testing.T, e *environment) { e.write(t, "admin.crt", "") }, "admin.crt", "is not a certificate"},
		{"a half-written key", func(t *testing.T, e *environment) {
			e.write(t, "apiserver.key", e.read(t, "apiserver.key")[:100])
		}, "apiserver.key", "is not a private key"},
		{"a half-written signing key", func(t *testing.T, e *environment) {
			e.write(t, "sa.key", e.read(t, "sa.key")[:100])
		}, "sa.key", "is not a private key"},
		{"a missing key", func(t *testing.T, e *environment) { e.remove(t, "ca.key") }, "ca.key", "is missing"},
		{"a missing signing key", func(t *testing.T, e *environment) { e.remove(t, "sa.key") }, "sa.key", "is missing"},
		{"the certificate of another key", func(t *testing.T, e *environment) {
			e.write(t, "admin.crt", e.read(t, "apiserver.crt"))
		}, "admin.crt", "is not the certificate of"},
		{"the public key of another key", func(t *testing.T, e *environment) {
			other := newEnvironment(t)
			other.open(t)
			e.write(t, "sa.pub", other.read(t, "sa.pub"))
		}, "sa.pub", "is not the public key of"},
		{"the pair of another authority", func(t *testing.T, e *environment) {
			other := newEnvironment(t)
			other.open(t)
			e.write(t, "apiserver.crt", other.read(t, "apiserver.crt"))
			e.write(t, "apiserver.key", other.read(t, "apiserver.key"))
		}, "apiserver.crt", "was not signed by"},
		{"a leaf in the place of the authority", func(t *testing.T, e *environment) {
			e.write(t, "ca.crt", e.read(t, "admin.crt"))
			e.write(t, "ca.key", e.read(t, "admin.key"))
		}, "ca.crt", "is not a certificate authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnvironment(t)
			e.open(t)
			tc.damage(t, e)
			before := e.all(t)
			_, err := Open(e.cfg)
			if err == nil {
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), e.path(tc.file)) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line that names %s and says %q", err, tc.file, tc.says)
			}
			for file, content := range e.all(t) {
				if before[file] != content {
					t.Errorf("%s was overwritten", file)
				}
			}
		})
	}
}

func TestAStartThatWasInterruptedIsCompleted(t *testing.T) {
	// Files are made one by one. Whichever is the first one missing, the next start
	// continues with it.
	whole := newEnvironment(t)
	whole.open(t)
	order := []string{"ca.key", "ca.crt", "apiserver.key", "apiserver.crt", "admin.key", "admin.crt",
		"front-proxy-ca.key", "front-proxy-ca.crt", "front-proxy-client.key", "front-proxy-client.crt", "sa.key", "sa.pub"}
	for made := range order {
		e := newEnvironment(t)
		for _, file := range order[:made] {
			e.write(t, file, whole.read(t, file))
		}
		e.write(t, "."+order[made]+".tmp", "half")
		e.open(t)
		for _, file := range order[:made] {
			if e.read(t, file) != whole.read(t, file) {
				t.Errorf("%s was replaced when %s was missing", file, order[made])
			}
		}
	}
}

func TestADirectoryThatCannotBeMadeIsNamed(t *testing.T) {
	e := newEnvironment(t)
	e.cfg.Dir = filepath.Join(e.cfg.Dir, "file", "pki")
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(e.cfg.Dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(e.cfg.Dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(e.cfg); err == nil || !strings.Contains(err.Error(), filepath.Dir(e.cfg.Dir)) {
		t.Errorf("got %v", err)
	}
}
