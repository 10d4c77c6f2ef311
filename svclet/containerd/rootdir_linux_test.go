package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// root makes a directory with files, or directories if their names end with a slash.
func root(t *testing.T, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	errs := []error{os.Mkdir(dir, 0o700)}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			errs = append(errs, os.MkdirAll(path, 0o700))
			continue
		}
		errs = append(errs, os.WriteFile(path, nil, 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOnlyADirectoryOfAnAgentIsARootDirectory(t *testing.T) {
	for _, dir := range []string{
		root(t), root(t, LockFile), root(t, LockFile, "precious"), filepath.Join(t.TempDir(), "none"),
	} {
		if err := CheckRoot(dir); err != nil {
			t.Error(err)
		}
	}
	for _, names := range [][]string{{"precious"}, {"home/"}, {"containerd/"}, {"pods/", "etc/"}, {".profile"}} {
		dir := root(t, names...)
		err := CheckRoot(dir)
		if want := dir + " is not the root directory of a svclet: it has no svclet.lock, and has "; err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("of a directory with %v it says: %v, want %s...", names, err, want)
		}
	}
}

func TestRemovingARootDirectoryKeepsWhatOthersHaveMade(t *testing.T) {
	dir := root(t, "precious", "w/", LockFile, "pods/uid/", "containerd/", "cpu_manager_state", ".claims_state1")
	kept, err := RemoveRoot(t.Context(), dir)
	if want := []string{"precious", "w"}; err != nil || !slices.Equal(kept, want) {
		t.Errorf("kept %v, %v, want %v", kept, err, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	own, link := root(t, LockFile, "pods/"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is none
		if kept, err := RemoveRoot(t.Context(), link); err != nil || len(kept) > 0 {
			t.Errorf("kept %v, %v", kept, err)
		}
	}
	for _, path := range []string{own, link} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestARemovalThatFailedCanBeRepeated(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir, disk := root(t, "pods/uid/", LockFile), root(t, "file")
	volume := filepath.Join(dir, "pods", "uid")
	if err := unix.Mount(disk, volume, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveRoot(t.Context(), dir); err == nil || CheckRoot(dir) != nil {
		t.Errorf("with a mount: %v; then: %v", err, CheckRoot(dir))
	}
	if err := unix.Unmount(volume, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveRoot(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

func TestAResetUnmountsOnlyWhatAnAgentHasMounted(t *testing.T) {
	if !mounting(t) {
		return
	}
	dir, disk := root(t, "other/", "pods/uid/"), root(t, "file")
	other, volume := filepath.Join(dir, "other"), filepath.Join(dir, "pods", "uid")
	for _, target := range []string{other, volume} {
		if err := unix.Mount(disk, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := unmountRoot(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(other, "file")); err != nil {
		t.Errorf("a mount of others is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(volume, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mount of a pod is left: %v", err)
	}
	if err := unix.Unmount(other, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}
