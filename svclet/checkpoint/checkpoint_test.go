package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestACheckpointIsReadAsItWasWritten(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "state"), Version: 1}
	var got map[string]int
	if found, err := f.Load(&got); found || err != nil {
		t.Fatalf("without a file: %t, %v", found, err)
	}
	for _, n := range []int{1, 2} {
		if err := f.Save(map[string]int{"a": n}); err != nil {
			t.Fatal(err)
		}
		if found, err := f.Load(&got); !found || err != nil || got["a"] != n {
			t.Errorf("%t, %v, %v", found, err, got)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(f.Path)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestADirectoryOfAFilesystemWithoutSyncIsNoError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the filesystem proc")
	}
	if err := Sync("/proc"); err != nil { // fsync(2) returns EINVAL
		t.Error(err)
	}
	if err := Sync(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestAnUnusableCheckpointNamesTheFileToRemove(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "state"), Version: 1}
	if err := f.Save(map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"cut off":         {string(good[:len(good)/2]), "it is damaged"},
		"empty":           {"", "it is damaged"},
		"changed":         {strings.Replace(string(good), `"a":1`, `"a":2`, 1), "the checksum is wrong"},
		"another version": {strings.Replace(string(good), `"version":1`, `"version":7`, 1), "it has version 7, this svclet writes version 1"},
	} {
		if err := os.WriteFile(f.Path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var data map[string]int
		_, err := f.Load(&data)
		if err == nil || !strings.HasPrefix(err.Error(), f.Path+": ") || !strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "remove this file and start svclet again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
