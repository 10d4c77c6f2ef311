package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"k8s.io/utils/clock"
)

// TestRealProcessesAreMoved moves its own processes out of its own cgroup, which
// stands for the root cgroup.
func TestRealProcessesAreMoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("processes are root's to move")
	}
	h, err := newHost(Options{Driver: Cgroupfs, Clock: clock.RealClock{}})
	if err != nil {
		t.Skip("this machine has no cgroups: ", err)
	}
	root := name{"svc-test-system-" + strconv.Itoa(os.Getpid())}
	if err := h.apply(root, Limits{}); err != nil {
		t.Skip("cgroups cannot be made here: ", err)
	}
	t.Cleanup(func() {
		if err := h.remove(root); err != nil {
			t.Error(err)
		}
		if !h.absent(root) {
			t.Errorf("%s is left", h.driver.path(root))
		}
	})
	apart := root.child("apart")
	if err := h.apply(apart, Limits{}); err != nil {
		t.Fatal(err)
	}
	before := cgroupsOf(t, os.Getpid())

	first, second := start(t, h, root, "sleep", "1000"), start(t, h, root, "sleep", "1000")
	// A process that forks all the time is moved with all its children.
	forking := start(t, h, root, "sh", "-c", "while :; do sleep 0.01; done")
	other := start(t, h, apart, "sleep", "1000")
	// On cgroup v1, a process that is elsewhere in a single hierarchy is not in the
	// root.
	partly := start(t, h, root, "sleep", "1000")
	last := h.needed[len(h.needed)-1]
	if err := cgroups.WriteCgroupProc(filepath.Join(last, h.driver.path(apart)), partly); err != nil {
		t.Fatal(err)
	}

	to := root.child("system").child("inner") // is not there yet
	found, err := newProcesses(clock.RealClock{}, root, to)
	if err != nil {
		t.Fatal(err)
	}
	s := &System{cgroup: h.driver.path(to), processes: found, proc: "/proc", clock: clock.RealClock{}}
	for range 2 { // to move them again changes nothing
		if err := s.move(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := found.list(); err != nil || len(left) != 0 {
			t.Errorf("%v are left: %v", left, err)
		}
		moved := pidsIn(t, last, to)
		for _, pid := range []int{first, second, forking} {
			if !slices.Contains(moved, pid) {
				t.Errorf("%d is not among the moved, %v", pid, moved)
			}
		}
		if stay, want := pidsIn(t, last, apart), slices.Sorted(slices.Values([]int{other, partly})); !slices.Equal(stay, want) {
			t.Errorf("in a cgroup of their own are %v, want %v", stay, want)
		}
	}
	// Later processes are moved by the next call.
	late := start(t, h, root, "sleep", "1000")
	if err := s.move(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, mount := range h.needed { // a process is in one cgroup of each hierarchy
		if moved := pidsIn(t, mount, to); !slices.Contains(moved, late) {
			t.Errorf("%d, which came later, is not among those moved in %s, %v", late, mount, moved)
		}
	}
	if after := cgroupsOf(t, os.Getpid()); after != before {
		t.Errorf("the test itself was moved, from\n%s to\n%s", before, after)
	}
}

// start runs a program in a cgroup until the end of the test.
func start(t *testing.T, h *host, in name, program string, args ...string) int {
	t.Helper()
	// It starts in the cgroup, so that none of its children is elsewhere.
	command := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `read go; exec "$@"`, "sh", program}, args...)...)
	gate, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
	m, _, err := h.manager(in, Limits{})
	if err == nil {
		err = m.Apply(command.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gate.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return command.Process.Pid
}

// pidsIn returns the processes of a cgroup in a hierarchy, sorted.
func pidsIn(t *testing.T, mount string, n name) []int {
	t.Helper()
	pids, err := cgroups.GetPids(filepath.Join(mount, Cgroupfs.path(n)))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pids)
	return pids
}

func cgroupsOf(t *testing.T, pid int) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}
