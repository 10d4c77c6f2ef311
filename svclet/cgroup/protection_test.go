package cgroup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMemoryIsProtectedByClassAndPod(t *testing.T) {
	active := []*corev1.Pod{
		testPod("a", guaranteed("cpu", "1", "memory", "100")), testPod("b", burstable("memory", "300")), testPod("c"),
	}
	for protection, want := range map[Protection][]string{
		"": {
			"apply /kubepods/poda shares=1024 memory=100",
			"apply /kubepods/burstable/podb shares=2",
			"apply /kubepods/besteffort/podc shares=2",
			"set /kubepods/burstable shares=2",
		},
		ProtectAll: {
			"apply /kubepods/poda shares=1024 memory=100 memory.low=0 memory.min=100",
			"apply /kubepods/burstable/podb shares=2 memory.low=0 memory.min=300",
			"apply /kubepods/besteffort/podc shares=2 memory.low=0 memory.min=0",
			"set /kubepods/burstable shares=2",
			"set /kubepods memory.low=0 memory.min=400",
			"set /kubepods/burstable memory.low=0 memory.min=300",
		},
		ProtectTiered: {
			"apply /kubepods/poda shares=1024 memory=100 memory.low=0 memory.min=100",
			"apply /kubepods/burstable/podb shares=2 memory.low=300 memory.min=0",
			"apply /kubepods/besteffort/podc shares=2 memory.low=0 memory.min=0",
			"set /kubepods/burstable shares=2",
			"set /kubepods memory.low=0 memory.min=400",
			"set /kubepods/burstable memory.low=300 memory.min=0",
		},
		ProtectNone: {
			"apply /kubepods/poda shares=1024 memory=100 memory.low=0 memory.min=0",
			"apply /kubepods/burstable/podb shares=2 memory.low=0 memory.min=0",
			"apply /kubepods/besteffort/podc shares=2 memory.low=0 memory.min=0",
			"set /kubepods/burstable shares=2",
			"set /kubepods memory.low=0 memory.min=0",
			"set /kubepods/burstable memory.low=0 memory.min=0",
		},
	} {
		tree := &recorded{driver: Cgroupfs}
		m := newManager(Options{PerQOS: true, Driver: Cgroupfs, Protection: protection}, tree)
		for _, p := range active {
			if err := create(m, p); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // The second changes nothing.
			if err := m.UpdateClasses(active); err != nil {
				t.Fatal(err)
			}
		}
		tree.expect(t, "protection "+string(protection), want...)
	}
}

func TestReservedMemoryIsProtected(t *testing.T) {
	tree := &recorded{driver: Cgroupfs}
	m := newManager(Options{
		PerQOS: true, Driver: Cgroupfs, Protection: ProtectAll, Enforce: []string{EnforceSystemReserved}, QOSReserved: 1,
		Capacity: list("memory", "1200"), SystemReserved: list("memory", "150"), SystemReservedCgroup: "/system",
	}, tree)
	if err := m.Enforce(func(string, string, string) {}); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "reserved", "set /kubepods memory=1200", "set /system memory=150 memory.min=150")
}
