package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// TestCgroupsOfTheKernelsV2 makes cgroups in the cgroup v2 of the kernel: processes are found in
// them, are killed, and the cgroups are removed. Huge pages are limited where the controller is
// not in a hierarchy of v1.
func TestCgroupsOfTheKernelsV2(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	mountUnified(t)
	h, root := realCgroups(t)
	if !h.v2 {
		t.Fatal("the machine has cgroup v1")
	}
	pod := root.child("pod1-2")
	if err := h.apply(pod, Limits{}); err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(unified, h.driver.path(pod))
	if h.hugetlb && len(h.sizes) > 0 {
		if err := h.set(pod, Limits{Hugepages: map[int64]int64{2 << 20: 4 << 20}}); err != nil {
			t.Error(err)
		}
		for size, name := range h.sizes {
			want := "0"
			if size == 2<<20 {
				want = strconv.Itoa(4 << 20)
			}
			expect(t, filepath.Join(directory, "hugetlb."+name+".max"), want)
		}
	}
	inner := pod.child("container")
	if err := h.apply(inner, Limits{}); err != nil {
		t.Fatal(err)
	}
	left := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unified, h.driver.path(inner), "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if pids, err := h.pids(pod); err != nil || !slices.Equal(pids, []int{left.Process.Pid}) {
		t.Errorf("processes %v, %v, want %d", pids, err, left.Process.Pid)
	}
	if names, err := h.directories(h.driver.path(root)); err != nil || !slices.Equal(names, []string{"pod1-2"}) {
		t.Errorf("children %v, %v", names, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	if err := h.kill(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process ended by itself")
	}
	if err := h.remove(pod); err != nil {
		t.Fatal(err)
	}
	if !h.absent(pod) {
		t.Error("the cgroup is left")
	}
}

// TestLimitsInV2 writes limits to files in place of those of cgroup v2.
func TestLimitsInV2(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	fakeUnified(t)
	for _, made := range []string{"", "pod1-2", "burstable", "burstable/pod3-4", "besteffort", "besteffort/pod5-6"} {
		if err := fakeCgroup(filepath.Join(unified, "kubepods", made)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := New(Options{
		PerQOS: true, Driver: Cgroupfs, PodMaxPIDs: 64, CPU: CPUQuota{Enforce: true}, Protection: ProtectAll, QOSReserved: 50,
		Capacity: list("cpu", "2", "memory", "1Gi", "pid", "1000"), SystemReserved: list("memory", "256Mi"), Enforce: []string{EnforcePods}, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := m.Enforce(func(_, _, message string) { t.Log(message) }); err != nil {
		t.Fatal(err)
	}
	resized := func(memory string) corev1.ResourceRequirements { return guaranteed("cpu", "500m", "memory", memory) }
	guaranteed, burstable := testPod("1-2", resized("64Mi")), testPod("3-4", burstable("cpu", "1", "memory", "32Mi"))
	for _, pod := range []*corev1.Pod{guaranteed, burstable, testPod("5-6")} {
		if err := create(m, pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.UpdateClasses([]*corev1.Pod{guaranteed, burstable}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ cgroup, file, text string }{
		{"", "memory.max", strconv.Itoa(768 << 20)}, {"", "pids.max", "1000"}, {"", "memory.min", strconv.Itoa(96 << 20)}, {"", "cpu.weight", "79"},
		{"pod1-2", "memory.max", strconv.Itoa(64 << 20)}, {"pod1-2", "memory.min", strconv.Itoa(64 << 20)}, {"pod1-2", "memory.low", "0"},
		{"pod1-2", "cpu.max", "50000 100000"}, {"pod1-2", "cpu.weight", "20"}, {"pod1-2", "pids.max", "64"},
		{"burstable", "memory.max", strconv.Itoa((768 - 32) << 20)}, {"burstable", "memory.min", strconv.Itoa(32 << 20)}, {"burstable", "cpu.weight", "39"},
		{"besteffort", "memory.max", strconv.Itoa((768 - 32 - 16) << 20)}, {"besteffort", "cpu.weight", "1"},
		{"burstable/pod3-4", "memory.min", strconv.Itoa(32 << 20)}, {"burstable/pod3-4", "cpu.weight", "39"},
		{"besteffort/pod5-6", "cpu.weight", "1"},
	} {
		expect(t, filepath.Join(unified, "kubepods", want.cgroup, want.file), want.text)
	}
	for _, none := range []string{"burstable/pod3-4/memory.max", "burstable/pod3-4/cpu.max", "besteffort/pod5-6/memory.max"} {
		if text, err := os.ReadFile(filepath.Join(unified, "kubepods", none)); err == nil && string(text) != "max\n" {
			t.Errorf("%s: %s, want no limit", none, text)
		}
	}
	for file, text := range map[string]string{"memory.current": strconv.Itoa(50 << 20), "memory.stat": "file 2097152\ninactive_file 1048576\n"} {
		if err := os.WriteFile(filepath.Join(unified, "kubepods/pod1-2", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.MemorySuffices(testPod("1-2", resized("48Mi"))); err == nil || !strings.Contains(err.Error(), "(50331648) below current usage (51380224)") {
		t.Errorf("a limit below what a pod uses: %v", err)
	}
	if err := m.MemorySuffices(testPod("1-2", resized("49Mi"))); err != nil {
		t.Error(err)
	}
}
