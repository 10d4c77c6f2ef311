package nft

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kernelDir returns a directory for parameters of the kernel, and a function that compares them.
func kernelDir(t *testing.T) (dir string, want func(what string, values map[string]string)) {
	t.Helper()
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(bootID)), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, func(what string, values map[string]string) {
		t.Helper()
		for name, value := range values {
			if got, err := read(dir, name); got != value || err != nil {
				t.Errorf("%s: %s is %q, error %v", what, name, got, err)
			}
		}
	}
}

func TestParametersAreRestored(t *testing.T) {
	root := t.TempDir()
	dir, want := kernelDir(t)
	for name, value := range map[string]string{bootID: "first\n", "off": "0\n", "on": "1\n", "gone": "0\n", "kept": "0\n"} {
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
	// One cannot be restored at first.
	if err := agent().Set("kept", "1"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "on")), os.Mkdir(filepath.Join(dir, "on"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := agent().Restore(); err == nil || !strings.Contains(err.Error(), "restore the kernel parameter on: ") {
		t.Error("a parameter that cannot be set:", err)
	}
	want("restored but for one", map[string]string{"off": "0", "kept": "0"})
	if err := errors.Join(os.Remove(filepath.Join(dir, "on")), write(dir, "on", "1")); err != nil {
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

func TestParametersOfAnotherBootAreNotRestored(t *testing.T) {
	dir := t.TempDir()
	p := NewParameters(t.TempDir())
	p.dir = dir
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(bootID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(write(dir, bootID, "first"), write(dir, "a", "0"), p.Set("a", "1"), write(dir, bootID, "second"), write(dir, "a", "2")); err != nil {
		t.Fatal(err)
	}
	if err := p.Restore(); err != nil {
		t.Error(err)
	}
	if got, err := read(dir, "a"); got != "2" || err != nil {
		t.Errorf("it is %q, error %v", got, err)
	}
}

// Another program may set it after that, as a service proxy of the user does.
func TestAParameterIsRestoredOnceAndOthersStay(t *testing.T) {
	dir, want := kernelDir(t)
	p := NewParameters(t.TempDir())
	p.dir = dir
	if err := errors.Join(write(dir, bootID, "first"), write(dir, "a", "0"), write(dir, "b", "0"), write(dir, "already", "1"), p.RestoreOne("a")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Set("a", "1"), p.Set("b", "1"), p.Set("already", "1"), p.RestoreOne("a"), p.RestoreOne("already")); err != nil {
		t.Error(err)
	}
	want("restored", map[string]string{"a": "0", "b": "1", "already": "1"})
	if err := errors.Join(write(dir, "a", "1"), p.RestoreOne("a")); err != nil {
		t.Error(err)
	}
	want("set by another program", map[string]string{"a": "1", "b": "1"})
	if err := errors.Join(write(dir, "a", "2"), p.Set("a", "1"), p.Restore()); err != nil {
		t.Error(err)
	}
	want("set again, and all restored", map[string]string{"a": "2", "b": "0"})
	if err := errors.Join(p.Set("a", "1"), os.Remove(filepath.Join(dir, "a")), p.RestoreOne("a"), write(dir, "a", "3"), p.RestoreOne("a")); err != nil {
		t.Error("a parameter that the kernel does not have any more:", err)
	}
	want("after the kernel has it again", map[string]string{"a": "3"})
}
