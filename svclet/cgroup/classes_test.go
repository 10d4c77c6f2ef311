package cgroup

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestBurstableSharesAreTheSumOfItsPodsRequests(t *testing.T) {
	tree := &recorded{driver: Cgroupfs}
	m := newManager(Options{PerQOS: true, Driver: Cgroupfs}, tree)
	active := []*corev1.Pod{
		testPod("a", burstable("cpu", "1")), testPod("b", burstable("cpu", "500m"), burstable("memory", "1Mi")),
		testPod("c", guaranteed("cpu", "4", "memory", "1Mi")), testPod("d"),
	}
	for range 2 {
		if err := m.UpdateClasses(active); err != nil {
			t.Fatal(err)
		}
	}
	tree.expect(t, "written once", "set /kubepods/burstable shares=1536")
	if err := m.UpdateClasses(active[1:]); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "written when it changes", "set /kubepods/burstable shares=512")
}

// reserving returns a manager with 1,000 bytes for pods, which reserves a
// percentage of their requests from lower classes.
func reserving(percentage int, tree *recorded) *Manager {
	tree.driver = Cgroupfs
	return newManager(Options{
		PerQOS: true, Driver: Cgroupfs, QOSReserved: percentage,
		Capacity: list("memory", "1200"), KubeReserved: list("memory", "50"), SystemReserved: list("memory", "150"),
	}, tree)
}

func TestQOSReservedMemoryIsSubtractedFromLowerClasses(t *testing.T) {
	active := []*corev1.Pod{
		testPod("a", guaranteed("cpu", "1", "memory", "100")), testPod("b", guaranteed("cpu", "1", "memory", "100")),
		testPod("c", burstable("memory", "300")), testPod("d"),
	}
	for _, test := range []struct {
		name       string
		percentage int
		active     []*corev1.Pod
		want       []string
	}{
		{"none", 0, active, []string{"set /kubepods/burstable shares=2"}},
		{"half", 50, active, []string{"set /kubepods/burstable shares=2 memory=900", "set /kubepods/besteffort memory=750"}},
		{"all", 100, active, []string{"set /kubepods/burstable shares=2 memory=800", "set /kubepods/besteffort memory=500"}},
		{"of no pods", 100, nil, []string{"set /kubepods/burstable shares=2 memory=1000", "set /kubepods/besteffort memory=1000"}},
		{"where nothing is left, a bound that is one", 100, append(active, testPod("e", guaranteed("cpu", "1", "memory", "800"))),
			[]string{"set /kubepods/burstable shares=2 memory=1", "set /kubepods/besteffort memory=1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := &recorded{}
			m := reserving(test.percentage, tree)
			for range 2 {
				if err := m.UpdateClasses(test.active); err != nil {
					t.Fatal(err)
				}
			}
			tree.expect(t, "written once", test.want...)
		})
	}
}

func TestAClassOverItsMemoryLimitIsLimitedToItsUsageAndRetried(t *testing.T) {
	tree := &recorded{used: map[string]int64{"/kubepods/besteffort": 700}}
	m := reserving(100, tree)
	active := []*corev1.Pod{testPod("a", guaranteed("cpu", "1", "memory", "400"))}
	again := []string{"set /kubepods/burstable shares=2 memory=600", "set /kubepods/besteffort memory=600", "set /kubepods/besteffort memory=700"}
	for range 2 {
		if err := m.UpdateClasses(active); err != nil {
			t.Fatal(err)
		}
		tree.expect(t, "bounded to what it uses", again...)
	}
	delete(tree.used, "/kubepods/besteffort")
	for range 2 {
		if err := m.UpdateClasses(active); err != nil {
			t.Fatal(err)
		}
	}
	tree.expect(t, "bounded to what it may use, once it can be", again[:2]...)
}

func TestAFailedClassLimitIsReturnedAndRetried(t *testing.T) {
	tree := &recorded{failing: "/kubepods/burstable"}
	m := reserving(100, tree)
	for range 2 {
		err := m.UpdateClasses(nil)
		if err == nil || !strings.Contains(err.Error(), "update the cgroup of the class Burstable: device or resource busy") {
			t.Errorf("error %v", err)
		}
		tree.expect(t, "tried", "set /kubepods/burstable shares=2 memory=1000")
	}
}

func TestClassLimitsOfAnEarlierAgentAreRemovedUnlessConfigured(t *testing.T) {
	for percentage, want := range map[int][]string{
		0:  {"set /kubepods memory=1200", "set /kubepods/burstable memory=-1", "set /kubepods/besteffort memory=-1"},
		50: {"set /kubepods memory=1200"},
	} {
		tree := &recorded{}
		m := reserving(percentage, tree)
		if err := m.Enforce(func(_, _, _ string) {}); err != nil {
			t.Fatal(err)
		}
		tree.expect(t, "enforced", want...)
	}
}
