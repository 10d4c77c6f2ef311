package nft

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestParametersAreRestored(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	want := func(what string, values map[string]string) {
		t.Helper()
		for name, value := range values {
			if got, err := read(dir, name); got != value || err != nil {
				t.Errorf("%s: %s is %q, error %v", what, name, got, err)
			}
		}
	}
	for name, value := range map[string]string{"off": "0\n", "on": "1\n", "gone": "0\n"} {
		if err := write(dir, name, value); err != nil {
			t.Fatal(err)
		}
	}
	agent := func() *Parameters {
		p := NewParameters(root)
		p.dir = dir
		return p
	}
	if err := agent().Restore(); err != nil {
		t.Error("nothing to restore:", err)
	}
	set := func() {
		t.Helper()
		p := agent()
		for _, name := range []string{"off", "on", "gone"} {
			if err := p.Set(name, "1"); err != nil {
				t.Error(err)
			}
		}
		want("set", map[string]string{"off": "1", "on": "1", "gone": "1"})
	}
	set()
	// Another program changes one, and the agent is started again.
	if err := write(dir, "on", "0"); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "off", "2"); err != nil {
		t.Fatal(err)
	}
	set()
	if err := agent().Set("missing", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a missing parameter:", err)
	}
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := agent().Restore(); err != nil {
		t.Error(err)
	}
	want("restored", map[string]string{"off": "0", "on": "0"})
	for _, file := range []string{filepath.Join(dir, "gone"), filepath.Join(root, parametersFile)} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Error(file, err)
		}
	}
}
