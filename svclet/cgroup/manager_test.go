package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recorded is a tree that records all calls.
type recorded struct {
	driver   Driver
	steps    []string
	children map[string][]string
	missing  string
	failing  string
	// used is the memory usage in bytes by cgroup: a cgroup refuses a lower limit. reclaimable
	// is the part of it, in each cgroup, that the kernel can reclaim.
	used        map[string]int64
	reclaimable int64
	unmeasured  bool  // the memory usage is unknown
	limit       int64 // the memory limit of each cgroup
}

func (r *recorded) step(what string, n name, limits Limits) error {
	path := r.driver.path(n)
	text := what + " " + path
	if limits.Shares != nil {
		text += fmt.Sprintf(" shares=%d", *limits.Shares)
	}
	if limits.Memory != nil {
		text += fmt.Sprintf(" memory=%d", *limits.Memory)
	}
	if limits.PIDs != nil {
		text += fmt.Sprintf(" pids=%d", *limits.PIDs)
	}
	for _, size := range slices.Sorted(maps.Keys(limits.Hugepages)) {
		text += fmt.Sprintf(" hugepages-%d=%d", size, limits.Hugepages[size])
	}
	for _, file := range slices.Sorted(maps.Keys(limits.Protected)) {
		text += fmt.Sprintf(" %s=%d", file, limits.Protected[file])
	}
	r.steps = append(r.steps, text)
	if path == r.failing || limits.Memory != nil && *limits.Memory > 0 && *limits.Memory < r.used[path]-r.reclaimable {
		return errors.New("device or resource busy")
	}
	return nil
}

func (r *recorded) exists(path string) error {
	if path == r.missing {
		return errors.New("no such file or directory")
	}
	return nil
}
func (r *recorded) apply(n name, limits Limits) error { return r.step("apply", n, limits) }
func (r *recorded) set(n name, limits Limits) error   { return r.step("set", n, limits) }
func (r *recorded) kill(_ context.Context, n name) error {
	return r.step("kill", n, Limits{})
}
func (r *recorded) pids(name) ([]int, error)                  { return nil, nil }
func (r *recorded) remove(n name) error                       { return r.step("remove", n, Limits{}) }
func (r *recorded) directories(path string) ([]string, error) { return r.children[path], nil }
func (r *recorded) memory(n name) (used, workingSet int64, err error) {
	if r.unmeasured {
		return 0, 0, errors.New("missing memory usage")
	}
	used = r.used[r.driver.path(n)]
	return used, used - r.reclaimable, nil
}
func (r *recorded) memoryLimit(name) (int64, error) { return r.limit, nil }
func (r *recorded) hugepageSizes() []int64          { return nil }
func (r *recorded) cpus() (string, error)           { return "", nil }
func (r *recorded) expect(t *testing.T, what string, w ...string) {
	t.Helper()
	if diff := cmp.Diff(w, r.steps); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	r.steps = nil
}

// create creates a pod's cgroup, whatever limit it keeps.
func create(m *Manager, p *corev1.Pod) error {
	_, err := m.Create(p)
	return err
}

func TestTheHierarchyIsKubelets(t *testing.T) {
	for _, test := range []struct {
		driver                                  Driver
		root, guaranteed, burstable, bestEffort string
	}{
		{Cgroupfs, "", "/kubepods/pod1-2", "/kubepods/burstable/pod1-2", "/kubepods/besteffort/pod1-2"},
		{Cgroupfs, "/a/b", "/a/b/kubepods/pod1-2", "/a/b/kubepods/burstable/pod1-2", "/a/b/kubepods/besteffort/pod1-2"},
		{Systemd, "/", "/kubepods.slice/kubepods-pod1_2.slice",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice"},
		{Systemd, "/my-node", "/my_node.slice/my_node-kubepods.slice/my_node-kubepods-pod1_2.slice",
			"/my_node.slice/my_node-kubepods.slice/my_node-kubepods-burstable.slice/my_node-kubepods-burstable-pod1_2.slice",
			"/my_node.slice/my_node-kubepods.slice/my_node-kubepods-besteffort.slice/my_node-kubepods-besteffort-pod1_2.slice"},
	} {
		m := newManager(Options{PerQOS: true, Root: test.root, Driver: test.driver}, &recorded{driver: test.driver})
		for _, class := range []struct {
			pod  *corev1.Pod
			want string
		}{
			{testPod("1-2", guaranteed("cpu", "1", "memory", "1Mi")), test.guaranteed},
			{testPod("1-2", burstable("cpu", "1")), test.burstable},
			{testPod("1-2"), test.bestEffort},
		} {
			got, err := m.Parent(class.pod)
			if err != nil || got != class.want {
				t.Errorf("%s under %q: %q, %v, want %q", test.driver, test.root, got, err, class.want)
			}
			if uid, isPod := test.driver.podUID(class.want); !isPod || uid != "1-2" {
				t.Errorf("the pod of %q: %q, %v", class.want, uid, isPod)
			}
		}
	}
}

func TestWithoutCgroupsPerQOSTheRuntimeChoosesTheParent(t *testing.T) {
	for root, want := range map[string]string{"": "", "/": "", "/pods": "/pods"} {
		tree := &recorded{}
		m := newManager(Options{Root: root, Driver: Cgroupfs}, tree)
		if got, err := m.Parent(testPod("u")); err != nil || got != want {
			t.Errorf("parent under %q: %q, %v, want %q", root, got, err, want)
		}
		err := errors.Join(m.Start(), create(m, testPod("u")), m.UpdateClasses(nil), m.MemorySuffices(testPod("u")), m.Remove(t.Context(), "u"))
		if err != nil {
			t.Error(err)
		}
		tree.expect(t, "nothing is done")
	}
}

func TestAPodsCgroupIsCreatedUpdatedAndRemoved(t *testing.T) {
	tree := &recorded{driver: Cgroupfs}
	var measured []string
	m := newManager(Options{
		PerQOS: true, Driver: Cgroupfs, PodMaxPIDs: 50,
		Measured: func(operation string, _ time.Duration) { measured = append(measured, operation) },
	}, tree)
	if err := create(m, testPod("u", burstable("cpu", "1"))); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "creation", "apply /kubepods/burstable/podu shares=1024 pids=50")

	if err := m.Resize(testPod("u", burstable("cpu", "2")), nil); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "update", "set /kubepods/burstable/podu shares=2048 pids=50")

	if err := m.Remove(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "removal, of whichever class it is",
		"kill /kubepods/podu", "remove /kubepods/podu",
		"kill /kubepods/burstable/podu", "remove /kubepods/burstable/podu",
		"kill /kubepods/besteffort/podu", "remove /kubepods/besteffort/podu")
	if diff := cmp.Diff([]string{"create", "update", "destroy"}, measured); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
}

func TestAUIDMustNotBeAPath(t *testing.T) {
	tree := &recorded{driver: Cgroupfs}
	m := newManager(Options{PerQOS: true, Driver: Cgroupfs}, tree)
	for _, uid := range []types.UID{"", "../../system.slice", "a/b", "a_b", ".."} {
		if err := create(m, testPod(string(uid))); err == nil {
			t.Errorf("a cgroup was made for %q", uid)
		}
		if err := m.Remove(t.Context(), uid); err == nil {
			t.Errorf("a cgroup was removed for %q", uid)
		}
	}
	tree.expect(t, "nothing is done")
}

func TestStartCreatesTheQOSClasses(t *testing.T) {
	tree := &recorded{driver: Systemd}
	m := newManager(Options{
		PerQOS: true, Driver: Systemd, Enforce: []string{EnforcePods},
		Capacity: list("cpu", "4", "memory", "1Gi", "pid", "1000", "hugepages-2Mi", "8Mi"), KubeReserved: list("cpu", "1", "pid", "100"),
	}, tree)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	tree.expect(t, "start",
		"apply /kubepods.slice shares=3072 pids=900 hugepages-2097152=8388608",
		"apply /kubepods.slice/kubepods-burstable.slice",
		"apply /kubepods.slice/kubepods-besteffort.slice shares=2")

	m = newManager(Options{PerQOS: true, Driver: Cgroupfs, Root: "/gone"}, &recorded{driver: Cgroupfs, missing: "/gone"})
	if err := m.Start(); err == nil || !strings.Contains(err.Error(), `--cgroup-root: there is no cgroup "/gone": make it`) {
		t.Errorf("start under a root that is not there: %v", err)
	}
}

func TestEnforce(t *testing.T) {
	options := Options{
		PerQOS: true, Driver: Cgroupfs,
		Capacity:     list("cpu", "4", "memory", "4096"),
		KubeReserved: list("cpu", "1", "memory", "1024"), SystemReserved: list("memory", "1024"),
		KubeReservedCgroup: "/agents", SystemReservedCgroup: "/system",
	}
	for _, test := range []struct {
		name          string
		enforce       []string
		failing       string
		missing       string
		steps, events []string
	}{
		{name: "nothing reserved is enforced, but shares are given", steps: []string{"set /kubepods shares=4096 memory=4096", "set /kubepods/burstable memory=-1", "set /kubepods/besteffort memory=-1"},
			events: []string{"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods"}},
		{name: "pods", enforce: []string{EnforcePods}, steps: []string{"set /kubepods shares=3072 memory=2048", "set /kubepods/burstable memory=-1", "set /kubepods/besteffort memory=-1"},
			events: []string{"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods"}},
		{name: "pods that use more", enforce: []string{EnforcePods}, failing: "/kubepods", steps: []string{"set /kubepods shares=3072 memory=2048"},
			events: []string{`Warning FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits ["kubepods"]: device or resource busy`}},
		{name: "reserved cgroups", enforce: []string{EnforceSystemReserved, EnforceKubeReservedCompressible},
			steps: []string{"set /kubepods shares=4096 memory=4096", "set /kubepods/burstable memory=-1", "set /kubepods/besteffort memory=-1", "set /system memory=1024", "set /agents shares=1024"},
			events: []string{
				"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
				"Normal NodeAllocatableEnforced: Updated limits on system reserved cgroup /system",
				"Normal NodeAllocatableEnforced: Updated limits on kube reserved cgroup /agents"}},
		{name: "a reserved cgroup that is not there", enforce: []string{EnforceKubeReserved}, missing: "/agents",
			steps: []string{"set /kubepods shares=4096 memory=4096", "set /kubepods/burstable memory=-1", "set /kubepods/besteffort memory=-1"},
			events: []string{
				"Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods",
				`Warning FailedNodeAllocatableEnforcement: Failed to enforce Kube Reserved Cgroup Limits on "/agents": no such file or directory`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := &recorded{driver: Cgroupfs, failing: test.failing, missing: test.missing}
			options.Enforce = test.enforce
			var events []string
			err := newManager(options, tree).Enforce(func(kind, reason, message string) {
				events = append(events, kind+" "+reason+": "+message)
			})
			if failed := strings.Contains(strings.Join(test.events, ""), "Failed"); failed != (err != nil) {
				t.Errorf("error %v", err)
			}
			tree.expect(t, "steps", test.steps...)
			if diff := cmp.Diff(test.events, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsListsPodsWithACgroup(t *testing.T) {
	for driver, children := range map[Driver]map[string][]string{
		Cgroupfs: {
			"/kubepods":            {"burstable", "besteffort", "podg-1"},
			"/kubepods/burstable":  {"podb-1", "other"},
			"/kubepods/besteffort": {"pode-1", "podb-1", "pod"},
		},
		Systemd: {
			"/kubepods.slice":                           {"kubepods-burstable.slice", "kubepods-podg_1.slice"},
			"/kubepods.slice/kubepods-burstable.slice":  {"kubepods-burstable-podb_1.slice"},
			"/kubepods.slice/kubepods-besteffort.slice": {"kubepods-besteffort-pode_1.slice"},
		},
	} {
		m := newManager(Options{PerQOS: true, Driver: driver}, &recorded{driver: driver, children: children})
		got, err := m.Pods()
		if want := []types.UID{"b-1", "e-1", "g-1"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", driver, got, err, want)
		}
	}
}

func TestPathOfTheCgroupOfAllPods(t *testing.T) {
	for _, test := range []struct {
		driver Driver
		root   string
		perQOS bool
		want   string
	}{
		{Cgroupfs, "", true, "/kubepods"},
		{Cgroupfs, "/a/b", true, "/a/b/kubepods"},
		{Cgroupfs, "/a", false, "/a"},
		{Systemd, "/", true, "/kubepods.slice"},
		{Systemd, "/a", true, "/a.slice/a-kubepods.slice"},
	} {
		if got := test.driver.PodsPath(test.root, test.perQOS); got != test.want {
			t.Errorf("%+v: got %s", test, got)
		}
	}
}
