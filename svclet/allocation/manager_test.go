package allocation

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	testclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/cpus"
	"svc.dev/svc/svclet/memory"
	"svc.dev/svc/svclet/topology"
	"svc.dev/svc/svclet/topology/topologytest"
)

// updates is a runtime that records the CPUs of containers.
type updates struct {
	mu   sync.Mutex
	cpus map[string]string
	fail bool
}

func (u *updates) UpdateResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fail {
		return errors.New("busy")
	}
	u.cpus[id] = r.GetLinux().GetCpusetCpus()
	return nil
}

// recorded are the metrics of a manager.
type recorded struct {
	admissions, refused, pinned, unpinned, shared int
}

func (r *recorded) TopologyAdmission(_ time.Duration, failed bool) {
	if r.admissions++; failed {
		r.refused++
	}
}

func (r *recorded) CPUsPinned(err error) {
	if r.pinned++; err != nil {
		r.unpinned++
	}
}

func (r *recorded) SharedCPUs(count int) { r.shared = count }

// newManager returns a manager of a machine of two NUMA nodes with four CPUs each, of
// which CPU 0 is reserved.
func newManager(t *testing.T, dir string, change ...func(*Options)) *Manager {
	t.Helper()
	machine := topologytest.Regular(2, 1, 4, 1, 1<<30)
	static, err := cpus.NewStatic(machine, cpus.Options{}, cpuset.New(0), 0)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Merger: topology.Merger{Policy: topology.Restricted, Nodes: machine.Nodes()}, CPUs: static, Dir: dir,
		Runtime: &updates{cpus: map[string]string{}}, Running: func() []Container { return nil }, Metrics: &recorded{}, Clock: testclock.NewFakeClock(time.Unix(0, 0)),
	}
	for _, f := range change {
		f(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func guaranteed(uid string, counts ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
	for i, count := range counts {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(count), corev1.ResourceMemory: resource.MustParse("1Mi")}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: string(rune('a' + i)), Resources: corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)},
		})
	}
	return p
}

func admitted(t *testing.T, m *Manager, p *corev1.Pod) {
	t.Helper()
	if refusal := m.Admit(p); refusal != nil {
		t.Fatalf("%s: %s: %s", p.Name, refusal.Reason, refusal.Message)
	}
}

func TestCPUsAreAllocatedAlignedAndFreed(t *testing.T) {
	m := newManager(t, t.TempDir())
	first, second := guaranteed("1", "2", "3"), guaranteed("2", "1")
	admitted(t, m, first)
	if a, b := m.CPUs("1", "a"), m.CPUs("1", "b"); a != "1-2" || b != "4-6" {
		t.Errorf("%s, %s", a, b)
	}
	admitted(t, m, second)
	if own, shared := m.CPUs("2", "a"), m.CPUs("of others", "x"); own != "3" || shared != "0,7" {
		t.Errorf("%s, %s", own, shared)
	}
	refusal := m.Admit(guaranteed("3", "1", "1"))
	if refusal == nil || refusal.Reason != TopologyReason {
		t.Errorf("more than there is: %v", refusal)
	}
	if shared := m.CPUs("3", "a"); shared != "0,7" {
		t.Errorf("the refused pod keeps a CPU: shared are %s", shared)
	}
	m.Retain([]*corev1.Pod{second})
	if shared := m.CPUs("of others", "x"); shared != "0-2,4-7" {
		t.Errorf("after the end of the first: %s", shared)
	}
}

func TestAPodHasExclusiveCPUsIfOneOfItsContainersHas(t *testing.T) {
	m := newManager(t, t.TempDir())
	admitted(t, m, guaranteed("1", "2", "500m"))
	admitted(t, m, guaranteed("2", "500m"))
	if a, b := m.HasExclusiveCPUs("1", "a"), m.HasExclusiveCPUs("1", "b"); !a || b {
		t.Errorf("containers: %v, %v", a, b)
	}
	if one, two := m.PodHasExclusiveCPUs("1"), m.PodHasExclusiveCPUs("2"); !one || two {
		t.Errorf("pods: %v, %v", one, two)
	}
	none, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if none.HasExclusiveCPUs("1", "a") || none.PodHasExclusiveCPUs("1") {
		t.Error("there are exclusive CPUs without the static policy")
	}
}

func TestAPodIsAlignedAsAWholeOrNotAtAll(t *testing.T) {
	single := func(o *Options) { o.Merger.Policy = topology.SingleNUMANode }
	perPod := func(o *Options) { o.PerPod = true }
	p := guaranteed("1", "3", "3")
	admitted(t, newManager(t, t.TempDir(), single), p)
	if refusal := newManager(t, t.TempDir(), single, perPod).Admit(p); refusal == nil || refusal.Reason != TopologyReason {
		t.Errorf("six CPUs on one node of four: %v", refusal)
	}
	m := newManager(t, t.TempDir(), single, perPod)
	admitted(t, m, guaranteed("2", "2", "2"))
	if a, b := m.CPUs("2", "a"), m.CPUs("2", "b"); a != "4-5" || b != "6-7" {
		t.Errorf("%s, %s", a, b)
	}
}

func TestAllocationsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	admitted(t, newManager(t, dir), guaranteed("1", "2"))
	m := newManager(t, dir)
	if own, shared := m.CPUs("1", "a"), m.CPUs("x", "x"); own != "1-2" || shared != "0,3-7" {
		t.Errorf("%s, %s", own, shared)
	}
	file := filepath.Join(dir, "cpu_manager_state")
	wanted := file + ": it is of --cpu-manager-policy=static, and the policy is none; drain the node, remove this file"
	if _, err := New(Options{Dir: dir}); err == nil || !strings.HasPrefix(err.Error(), wanted) {
		t.Errorf("another policy: %v", err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(m.o); err == nil || !strings.HasPrefix(err.Error(), file+": ") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestRunningContainersFollowTheSharedCPUs(t *testing.T) {
	runtime := &updates{cpus: map[string]string{}}
	m := newManager(t, t.TempDir(), func(o *Options) {
		o.Runtime = runtime
		o.Running = func() []Container {
			return []Container{{Pod: "s", Name: "c", ID: "shared"}, {Pod: "1", Name: "a", ID: "own"}}
		}
	})
	set := m.reconcile(t.Context(), nil)
	if got := runtime.cpus["shared"]; got != "0-7" {
		t.Errorf("at first %s", got)
	}
	admitted(t, m, guaranteed("1", "2"))
	runtime.fail = true
	set = m.reconcile(t.Context(), set)
	runtime.fail = false
	set = m.reconcile(t.Context(), set)
	if runtime.cpus["shared"] != "0,3-7" || runtime.cpus["own"] != "1-2" {
		t.Errorf("%v", runtime.cpus)
	}
	clear(runtime.cpus)
	if m.reconcile(t.Context(), set); len(runtime.cpus) != 0 {
		t.Errorf("updated without a change: %v", runtime.cpus)
	}
}

func TestAnAllocationThatFailsHasAReason(t *testing.T) {
	m := newManager(t, t.TempDir(), func(o *Options) { o.Merger.Policy = topology.None })
	refusal := m.Admit(guaranteed("1", "9"))
	want := admit.Refusal{Reason: "UnexpectedAdmissionError", Message: "Allocate failed due to not enough cpus available to satisfy request, which is unexpected"}
	if refusal == nil || refusal.Reason != want.Reason || refusal.Message != want.Message {
		t.Errorf("%v", refusal)
	}
}

func TestAdmissionsAndPinnedCPUsAreCounted(t *testing.T) {
	r := &recorded{}
	m := newManager(t, t.TempDir(), func(o *Options) { o.Metrics = r })
	check := func(what string, want recorded) {
		t.Helper()
		if *r != want {
			t.Errorf("%s: %+v, want %+v", what, *r, want)
		}
	}
	check("at the start", recorded{shared: 7})
	admitted(t, m, guaranteed("1", "2", "500m"))
	check("a container with exclusive CPUs beside one without", recorded{admissions: 1, pinned: 1, shared: 5})
	if refusal := m.Admit(guaranteed("2", "6")); refusal == nil {
		t.Fatal("more CPUs than there are were allocated")
	}
	check("a pod that cannot be aligned", recorded{admissions: 2, refused: 1, pinned: 1, shared: 5})
	m.Retain(nil)
	check("after all have ended", recorded{admissions: 2, refused: 1, pinned: 1, shared: 7})

	r = &recorded{}
	m = newManager(t, t.TempDir(), func(o *Options) { o.Metrics, o.Merger.Policy = r, topology.None })
	if refusal := m.Admit(guaranteed("1", "9")); refusal == nil {
		t.Fatal("more CPUs than there are were allocated")
	}
	check("without a topology policy", recorded{admissions: 1, pinned: 1, unpinned: 1, shared: 7})
}

// scarce is a resource of which the node has none.
type scarce struct{}

func (scarce) Hints(*corev1.Pod, *corev1.Container) topology.Hints { return nil }
func (scarce) PodHints(*corev1.Pod) topology.Hints                 { return nil }
func (scarce) Allocate(*corev1.Pod, *corev1.Container, topology.Mask) error {
	return errors.New("none left")
}
func (scarce) Release(types.UID) {}
func (scarce) Pods() []types.UID { return nil }
func (scarce) Save() error       { return nil }

func TestAPodThatLacksOneResourceKeepsNone(t *testing.T) {
	m := newManager(t, t.TempDir(), func(o *Options) { o.Providers = []Provider{scarce{}} })
	if refusal := m.Admit(guaranteed("1", "2")); refusal == nil || refusal.Message != "Allocate failed due to none left, which is unexpected" {
		t.Errorf("%v", refusal)
	}
	if own := m.Exclusive("1", "a"); own != nil {
		t.Errorf("it keeps CPUs %v", own)
	}
}

func TestMemoryIsAlignedWithCPUsAndSurvivesARestart(t *testing.T) {
	dir, machine := t.TempDir(), topologytest.Regular(2, 1, 4, 1, 1<<30)
	withMemory := func(o *Options) {
		static, err := memory.NewStatic(machine, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		o.Memory, o.Merger.Policy = static, topology.SingleNUMANode
	}
	m := newManager(t, dir, withMemory)
	first, second := guaranteed("1", "3"), guaranteed("2", "4")
	large := resource.MustParse("800Mi")
	for _, p := range []*corev1.Pod{first, second} {
		r := p.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = large, large
	}
	admitted(t, m, first)
	admitted(t, m, second)
	for range 2 {
		if a, b := m.MemoryNodes("1", "a"), m.MemoryNodes("2", "a"); a != "0" || b != "1" {
			t.Errorf("%s, %s", a, b)
		}
		if a, b := m.CPUs("1", "a"), m.CPUs("2", "a"); a != "1-3" || b != "4-7" {
			t.Errorf("%s, %s", a, b)
		}
		m = newManager(t, dir, withMemory)
	}
	if got := m.Memory("1", "a"); len(got) != 1 || got[0].Bytes != large.Value() {
		t.Errorf("%v", got)
	}
	if all := m.AllocatableMemory(); len(all) != 2 || all[1].Nodes[0] != 1 || all[1].Bytes != 1<<30 {
		t.Errorf("%v", all)
	}
	third := guaranteed("3", "1")
	third.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = large
	third.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = large
	if refusal := m.Admit(third); refusal == nil || refusal.Reason != TopologyReason {
		t.Errorf("more than a node has: %v", refusal)
	}
	m.Retain([]*corev1.Pod{second})
	if nodes := m.MemoryNodes("1", "a"); nodes != "" {
		t.Errorf("an ended pod has memory of %s", nodes)
	}
	o := m.o
	o.Memory = nil
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "memory_manager_state")) {
		t.Errorf("the checkpoint of another policy: %v", err)
	}
}
