package host

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInAUserNamespaceTheAgentRunsWithWhatItMayDo: a process that is root only in a user
// namespace of its own cannot change the machine. Each setting that stays as it is has a problem,
// and is no reason to end (the feature gate SvcletInUserNamespace).
func TestInAUserNamespaceTheAgentRunsWithWhatItMayDo(t *testing.T) {
	if !inUserNamespace(t) {
		return
	}
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	problems := Prepare(t.Context(), Options{OOMScoreAdj: -999, MaxOpenFiles: 1 << 40, Cgroup: "/svclet-of-a-user"})
	for _, want := range []string{"--oom-score-adj: ", "--max-open-files: ", "--svclet-cgroups: enter /svclet-of-a-user: "} {
		if !slices.ContainsFunc(problems, func(err error) bool { return strings.HasPrefix(err.Error(), want) }) {
			t.Errorf("no problem begins with %q: %v", want, problems)
		}
	}
	for _, setting := range tunables() {
		value, err := setting.read(Options{})
		named := slices.ContainsFunc(problems, func(err error) bool {
			return strings.Contains(err.Error(), "set the kernel's "+strings.ReplaceAll(setting.name, "/", "."))
		})
		if different := err != nil || value != setting.want; different != named {
			t.Errorf("%s is %d, %v, and has to be %d: has a problem: %t", setting.name, value, err, setting.want, named)
		}
	}
	if after, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || string(after) != string(before) {
		t.Errorf("the score is %s, %v, and was %s", after, err, before)
	}
}

// inUserNamespace runs a test as root of a user namespace, which is a user without rights
// outside: it reports whether this is that process. The other process runs it, and returns
// false.
func inUserNamespace(t *testing.T) bool {
	t.Helper()
	const variable = "SVC_TEST_IN_USER_NAMESPACE"
	if os.Getenv(variable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root maps a user of its choice")
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(executable) // that user may not search the directory
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	const unprivileged = 65534
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: unprivileged, Size: 1}}
	command := &exec.Cmd{
		Path: "/proc/self/fd/3", Args: []string{executable, "-test.run=^" + t.Name() + "$"}, Env: append(os.Environ(), variable+"=true"), ExtraFiles: []*os.File{program},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: id, GidMappings: id, Credential: &syscall.Credential{Uid: 0, Gid: 0}},
	}
	out, err := command.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINVAL):
		t.Skip("this machine allows no user namespaces: ", err)
	case err != nil:
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}
