package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheSnapshotterStaysOnAFullDisk(t *testing.T) {
	if !mounting(t) {
		return
	}
	config := Config{Dir: t.TempDir(), RegistryDir: "/certs.d"}
	if err := unix.Mount("tmpfs", config.Dir, "tmpfs", 0, "nr_inodes=64"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(config.Dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(config.root(), 0o700); err != nil {
		t.Fatal(err)
	}
	configured := func(snapshotter string, major int) {
		t.Helper()
		content, err := settings{Config: config, snapshotter: snapshotter, version: version{major: major}}.toml()
		if err == nil {
			err = os.WriteFile(config.configFile(), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	configured("native", 1)
	var err error
	for i := 0; err == nil; i++ {
		err = os.Mkdir(filepath.Join(config.Dir, fmt.Sprint(i)), 0o700)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	for _, major := range []int{1, 2} {
		for _, before := range []string{"overlayfs", "native"} {
			configured(before, major)
			if now, err := config.chooseSnapshotter(); err != nil || now != before {
				t.Errorf("containerd %d: %s is configured, and on a full disk %q is chosen, %v", major, before, now, err)
			}
		}
	}
	if err := os.Remove(config.configFile()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(config.Dir, "last"), 0o700); err != nil {
		t.Fatal(err)
	}
	if now, err := config.chooseSnapshotter(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("nothing is configured, and on a full disk %q is chosen, %v", now, err)
	}
}
