package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// inOwnMounts runs a test in a process with mounts of its own, which the machine does not see:
// it reports whether this is that process. The other process runs it, and returns false. So the
// library, which finds the cgroups of a process once, can be tested with others than the
// machine's.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	const variable = "SVC_TEST_IN_OWN_MOUNTS"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	command.Env = append(os.Environ(), variable+"="+t.Name())
	// Go makes the mounts private, so that none of the process's own is seen outside.
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("this machine allows no mount namespaces: ", err)
	case err != nil:
		t.Errorf("%v:\n%s", err, out)
	case regexp.MustCompile(`(?m)^--- SKIP`).Match(out):
		t.Skipf("%s", out)
	}
	return false
}

// mount mounts a file system until the process ends. It skips the test where the kernel has not
// got the file system.
func mount(t *testing.T, kind, directory string) {
	t.Helper()
	if err := unix.Mount(kind, directory, kind, 0, ""); err != nil {
		t.Skipf("mount %s on %s: %v", kind, directory, err)
	}
}

// mountUnified mounts the cgroup v2 of the kernel in place of the machine's cgroups.
func mountUnified(t *testing.T) {
	t.Helper()
	mount(t, "cgroup2", unified)
	if !cgroups.IsCgroup2UnifiedMode() {
		t.Fatal("the library does not find cgroup v2, which was mounted")
	}
}

// fakeUnified makes a directory in place of a cgroup v2 with all controllers. A kernel has each
// controller in one hierarchy only, and where that is v1 its v2 can limit almost nothing. What
// is written to the files of cgroups is kept; what the kernel does with it is not shown.
func fakeUnified(t *testing.T) {
	t.Helper()
	mountUnified(t)
	mount(t, "tmpfs", unified)
	cgroups.TestMode = true // files are made when they are written
	if err := fakeCgroup(unified); err != nil {
		t.Fatal(err)
	}
}

// fakeCgroup makes a directory in place of a cgroup of v2, with the files that the kernel makes.
func fakeCgroup(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"cgroup.controllers": "cpuset cpu io memory hugetlb pids\n", "cgroup.subtree_control": "", "cgroup.procs": "", "cpuset.cpus.effective": "0-1\n",
		"memory.stat": "inactive_file 0\n", "memory.current": "0\n", "memory.max": "max\n",
	} {
		if err := os.WriteFile(filepath.Join(path, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
