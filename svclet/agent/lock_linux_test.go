package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
)

// lockedIn returns the configuration of an agent that has its directories in dir, and no
// cgroups.
func lockedIn(dir string) Config {
	c := Config{Flags: config.DefaultFlags(), Configuration: config.Default()}
	c.RootDir, c.Configuration.PodLogsDir = filepath.Join(dir, "root"), filepath.Join(dir, "logs")
	c.Configuration.CgroupsPerQOS = ptr.To(false)
	return c
}

// checkLocked checks that the second of two agents is refused, with an error that begins
// with want, until the first one ends.
func checkLocked(t *testing.T, first, second Config, want string) {
	t.Helper()
	held, err := Lock(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(second); err == nil || !strings.HasPrefix(err.Error(), want+" is in use by another svclet: stop that") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second agent: %v, want one line with %q", err, want)
	}
	held.Close()
	again, err := Lock(second)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again.Close()
}

func TestARootDirectoryIsOfOneAgent(t *testing.T) {
	first, second := lockedIn(t.TempDir()), lockedIn(t.TempDir())
	second.RootDir = first.RootDir
	checkLocked(t, first, second, "--root-dir: "+first.RootDir)
}

func TestLogsAreOfOneAgentWhateverItsRootDirectory(t *testing.T) {
	first, second := lockedIn(t.TempDir()), lockedIn(t.TempDir())
	second.Configuration.PodLogsDir = first.Configuration.PodLogsDir
	checkLocked(t, first, second, "podLogsDir: "+first.Configuration.PodLogsDir)
}

// makeCgroup makes a cgroup for a test.
func makeCgroup(t *testing.T, dir string) {
	t.Helper()
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) {
		t.Skip(err) // of a container without cgroups of its own
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
}

// withCgroup returns the configurations of two agents with the same cgroup, which does not
// exist, and its directory.
func withCgroup(t *testing.T) (first, second Config, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make cgroups")
	}
	name := fmt.Sprintf("/svct%08x", rand.Uint32())
	dir, err := cgroup.Cgroupfs.Directory(name)
	if err != nil {
		t.Fatal(err)
	}
	first, second = lockedIn(t.TempDir()), lockedIn(t.TempDir())
	for _, c := range []Config{first, second} {
		c.Configuration.CgroupRoot, c.Configuration.CgroupsPerQOS = name, ptr.To(true)
	}
	return first, second, dir
}

func TestACgroupIsOfOneAgent(t *testing.T) {
	first, second, dir := withCgroup(t)
	makeCgroup(t, dir)
	checkLocked(t, first, second, "--cgroup-root: "+dir)
}

func TestACgroupThatAnAgentMakesIsLocked(t *testing.T) {
	first, second, dir := withCgroup(t)
	held, err := Lock(first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { held.Close() }()
	makeCgroup(t, dir) // as New does
	for range 2 {
		if err := held.LockCgroup(first); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Lock(second); err == nil || !strings.HasPrefix(err.Error(), "--cgroup-root: "+dir+" is in use by another svclet: stop that") {
		t.Errorf("a second agent: %v", err)
	}
}

func TestNoPodsOfAnotherAgentAreInACgroupThatDoesNotExist(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make cgroups")
	}
	c := config.Default()
	c.CgroupRoot = fmt.Sprintf("/svct%08x", rand.Uint32())
	if err := RefuseForeignPods(c, filepath.Join(t.TempDir(), "containerd")); err != nil {
		t.Error(err)
	}
}
