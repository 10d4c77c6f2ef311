package cgroup

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// TestRealCgroups creates cgroups on this machine, below one of its own.
func TestRealCgroups(t *testing.T) {
	h, root := realCgroups(t)
	m := newManager(Options{
		PerQOS: true, Root: h.driver.path(root), Driver: Cgroupfs, PodMaxPIDs: 64, CPU: CPUQuota{Enforce: true},
		Capacity: list("cpu", "2", "memory", "1Gi", "pid", "1000", "hugepages-2Mi", "8Mi"), SystemReserved: list("pid", "100"), Enforce: []string{EnforcePods},
	}, h)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Enforce(func(_, _, message string) { t.Log(message) }); err != nil {
		t.Fatal(err)
	}
	processes := "/sys/fs/cgroup/pids"
	if h.v2 {
		processes = unified
	}
	expect(t, filepath.Join(processes, h.driver.path(m.kubepods), "pids.max"), "900")
	if pages, limit := "/sys/fs/cgroup/hugetlb", "hugetlb.2MB.limit_in_bytes"; h.hugetlb && h.sizes[2<<20] != "" {
		if h.v2 {
			pages, limit = unified, "hugetlb.2MB.max"
		}
		expect(t, filepath.Join(pages, h.driver.path(m.kubepods), limit), strconv.Itoa(8<<20))
	}
	pod := testPod("1-2", guaranteed("cpu", "500m", "memory", "64Mi"))
	for range 2 { // to make it again changes nothing
		if err := create(m, pod); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := m.Parent(pod)
	if err != nil {
		t.Fatal(err)
	}
	h.expectLimits(t, parent)
	if err := m.UpdateClasses([]*corev1.Pod{testPod("3-4", burstable("cpu", "1"))}); err != nil {
		t.Fatal(err)
	}
	if uids, err := m.Pods(); err != nil || len(uids) != 1 || uids[0] != "1-2" {
		t.Errorf("pods %v, %v, want 1-2", uids, err)
	}
	h.expectReservation(t, m, pod)
	if running, err := m.Running(); err != nil || len(running) != 0 {
		t.Errorf("the running pods are %v, %v, want none", running, err)
	}
	h.removeWithProcess(t, m, pod, parent)
	if uids, err := m.Pods(); err != nil || len(uids) != 0 {
		t.Errorf("pods %v, %v, want none", uids, err)
	}
}

func TestProcessesAreLimitedWhereTheControllerIs(t *testing.T) {
	withPIDs, without := map[string]string{"cpu": t.TempDir(), "pids": t.TempDir()}, map[string]string{"cpu": t.TempDir()}
	for _, test := range []struct {
		options Options
		limit   bool
		fails   bool
	}{
		{Options{Hierarchies: withPIDs, PodMaxPIDs: 5}, true, false},
		{Options{Hierarchies: without}, false, false},
		{Options{Hierarchies: without, PodMaxPIDs: 5}, false, true},
		{Options{Hierarchies: without, SystemReserved: list("pid", "5")}, false, true},
		{Options{Hierarchies: without, KubeReserved: list("pid", "5")}, false, true},
	} {
		h, err := newHost(test.options)
		if (err != nil) != test.fails {
			t.Errorf("%+v: %v", test.options, err)
		}
		if err == nil && (h.resources(Limits{PIDs: ptr.To(int64(900))}).PidsLimit != nil) != test.limit {
			t.Errorf("%+v: a limit is set: %t", test.options, !test.limit)
		}
	}
}

// realCgroups returns the cgroups of this machine, and one that was created in them and is
// removed at the end.
func realCgroups(t *testing.T) (*host, name) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups are root's to make")
	}
	tree, err := newTree(Options{Driver: Cgroupfs, Clock: clock.RealClock{}})
	if err != nil {
		t.Skip("this machine has no cgroups: ", err)
	}
	h := tree.(*host)
	root := name{"svc-test-" + strconv.Itoa(os.Getpid())}
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
	return h, root
}

// expectLimits checks the limits of the pod's cgroup, in bytes, shares and thousandths of a CPU.
func (h *host) expectLimits(t *testing.T, parent string) {
	t.Helper()
	if h.v2 {
		expect(t, filepath.Join(unified, parent, "memory.max"), strconv.Itoa(64<<20))
		expect(t, filepath.Join(unified, parent, "cpu.max"), "50000 100000")
	} else {
		expect(t, filepath.Join("/sys/fs/cgroup/memory", parent, "memory.limit_in_bytes"), strconv.Itoa(64<<20))
		expect(t, filepath.Join("/sys/fs/cgroup/cpu", parent, "cpu.shares"), "512")
		expect(t, filepath.Join("/sys/fs/cgroup/cpu", parent, "cpu.cfs_quota_us"), "50000")
		expect(t, filepath.Join("/sys/fs/cgroup/pids", parent, "pids.max"), "64")
	}
}

// expectReservation checks that half of the memory that guaranteed pods request is reserved
// from the other classes, and not reserved by a later agent without the setting.
func (h *host) expectReservation(t *testing.T, m *Manager, pod *corev1.Pod) {
	t.Helper()
	keeping := newManager(m.options, h)
	keeping.options.QOSReserved = 50
	if err := keeping.UpdateClasses([]*corev1.Pod{pod}); err != nil {
		t.Fatal(err)
	}
	burstable := h.driver.path(m.class(corev1.PodQOSBurstable))
	limit, free := filepath.Join(unified, burstable, "memory.max"), "max"
	if !h.v2 {
		limit, free = filepath.Join("/sys/fs/cgroup/memory", burstable, "memory.limit_in_bytes"), strconv.FormatInt(math.MaxInt64&^int64(os.Getpagesize()-1), 10)
	}
	expect(t, limit, strconv.Itoa((1024-32)<<20))
	if got, err := h.memoryLimit(m.class(corev1.PodQOSBurstable)); err != nil || got != (1024-32)<<20 {
		t.Errorf("its limit is %d bytes, %v", got, err)
	}
	if used, workingSet, err := h.memory(m.class(corev1.PodQOSBurstable)); err != nil || workingSet < 0 || used < workingSet {
		t.Errorf("it uses %d bytes, of which %d are in use, %v", used, workingSet, err)
	}
	if err := m.Enforce(func(_, _, message string) { t.Log(message) }); err != nil {
		t.Fatal(err)
	}
	expect(t, limit, free)
}

// removeWithProcess removes the pod's cgroup with one that a container has left below it, and
// the process in that.
func (h *host) removeWithProcess(t *testing.T, m *Manager, pod *corev1.Pod, parent string) {
	t.Helper()
	left := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(h.needed[0], parent, "container")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if running, err := m.Running(); err != nil || len(running) != 1 || running[0] != pod.UID {
		t.Errorf("the running pods are %v, %v, want %s", running, err, pod.UID)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	if err := m.Remove(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the process that was left ended by itself")
		}
	case <-time.After(time.Minute):
		t.Error("the process that was left goes on")
	}
}

func expect(t *testing.T, file, want string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	} else if got := strings.TrimSpace(string(content)); got != want {
		t.Errorf("%s: %s, want %s", file, got, want)
	}
}
