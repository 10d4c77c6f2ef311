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

func TestACgroupIsOfOneAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make cgroups")
	}
	name := fmt.Sprintf("/svct%08x", rand.Uint32())
	dir, err := cgroup.Cgroupfs.Directory(name)
	if err != nil {
		t.Fatal(err)
	}
	err = os.Mkdir(dir, 0o755)
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
	first, second := lockedIn(t.TempDir()), lockedIn(t.TempDir())
	for _, c := range []Config{first, second} {
		c.Configuration.CgroupRoot, c.Configuration.CgroupsPerQOS = name, ptr.To(true)
	}
	checkLocked(t, first, second, "--cgroup-root: "+dir)
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
