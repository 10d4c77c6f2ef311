package podmanager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
)

// fakes are all parts that a manager works with. Operations fail until a pod is
// torn down, so that pods neither run nor keep trying.
type fakes struct {
	mu       sync.Mutex
	tearDown chan struct{} // blocks each tear-down until it is closed, if it is not nil
	known    bool
	released []string
	active   int
	node     corev1.Node
	runs     types.UID // the pod that has a running container, which does not stop
}

func (f *fakes) Perform(ctx context.Context, _ *corev1.Pod, _ pod.Observed, op pod.Operation, _ func(time.Duration)) pod.Result {
	if op.Kind == pod.StopContainer && f.runs != "" {
		<-ctx.Done() // it does not stop in this test
	}
	if op.Kind == pod.SetUp {
		return pod.Result{Reason: "FailedMount", Message: "not yet"}
	}
	if op.Kind == pod.TearDown && f.tearDown != nil {
		<-f.tearDown
	}
	return pod.Result{}
}
func (f *fakes) Observe(_ context.Context, uid types.UID) (pod.Observed, error) {
	if uid != f.runs {
		return pod.Observed{}, nil
	}
	return pod.Observed{
		Sandboxes:  []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
		Containers: []pod.Container{{ID: "c", Name: "app", SandboxID: "s", State: pod.Running}},
	}, nil
}
func (f *fakes) Refresh(context.Context, *corev1.Pod)             {}
func (f *fakes) PodIP(*corev1.Pod, pod.Observed) string           { return "" }
func (f *fakes) Sync(types.UID, *corev1.Pod, string, []pod.Probe) {}
func (f *fakes) Remove(types.UID)                                 {}
func (f *fakes) RemovePod(types.UID) error                        { return nil }
func (f *fakes) UIDs() ([]types.UID, error)                       { return nil, nil }
func (f *fakes) Pods() ([]types.UID, error)                       { return []types.UID{"left"}, nil }
func (f *fakes) Sweep(func(types.UID) bool) error                 { return nil }
func (f *fakes) PodRunning(_, _, _ time.Duration)                 {}
func (f *fakes) PodSynced(string, time.Duration)                  {}
func (f *fakes) PodEvicted(string)                                {}
func (f *fakes) PodSeen(int, time.Duration)                       {}
func (f *fakes) PodRejected(string)                               {}
func (f *fakes) Set(*corev1.Pod, corev1.PodStatus)                {}
func (f *fakes) Finish(*corev1.Pod)                               {}
func (f *fakes) Forget(types.UID)                                 {}
func (f *fakes) Mirror(*corev1.Pod) (*corev1.Pod, bool)           { return nil, false }
func (f *fakes) Object() *corev1.Node                             { return &f.node }
func (f *fakes) Event(*corev1.Pod, pod.Event)                     {}
func (f *fakes) Known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known
}
func (f *fakes) Released(p *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = append(f.released, p.Name)
}
func (f *fakes) SetActive(pods []*corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = len(pods)
}

// fixture is a manager that runs, with its fakes.
type fixture struct {
	*gomega.WithT
	*fakes
	*Manager
	clock   *testingclock.FakeClock
	updates chan source.Update
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	r := &fixture{
		WithT: gomega.NewWithT(t), fakes: &fakes{known: true},
		clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0)), updates: make(chan source.Update),
	}
	r.SetDefaultEventuallyTimeout(time.Minute)
	r.Manager = New(Options{
		Queue: NewQueue(), Table: NewTable(), Executor: r.fakes, Probes: r.fakes, Statuses: r.fakes, Sources: r.fakes, Node: r.fakes,
		QOS: r.fakes, Events: r.fakes, Metrics: r.fakes, Clock: r.clock,
		Leftovers: Leftovers{Volumes: r.fakes, Cgroups: r.fakes, Logs: r.fakes},
	})
	return r
}

// run runs the manager until the test ends.
func (r *fixture) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx, r.updates) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// testPod returns a static pod that the node admits: it has failed already, and uses
// no resources.
func testPod(name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, Annotations: map[string]string{source.SourceAnnotation: source.File}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodFailed},
	}
}

func TestTheFirstPodsOfTheAPIWaitForTheNode(t *testing.T) {
	r := newFixture(t)
	r.known = false
	r.run(t)
	began := r.clock.Now()
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{testPod("a", "a")}}
	r.o.Queue.ObjectsChanged(nil) // The event loop does not wait.
	r.Eventually(func() bool {
		if r.clock.HasWaiters() {
			r.clock.Step(nodeWait / 4)
		}
		return r.IsKnown("a")
	}).Should(gomega.BeTrue())
	r.Expect(r.clock.Since(began)).To(gomega.BeNumerically(">=", nodeWait))
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{testPod("b", "b")}}
	r.Eventually(func() bool { return r.IsKnown("b") }).Should(gomega.BeTrue()) // without a step of the clock
}

func TestTheLoopMakesProgressWhileItHasNoEvent(t *testing.T) {
	r := newFixture(t)
	r.run(t)
	r.clock.Step(time.Hour)
	r.Expect(r.Progress()).To(gomega.Equal(r.clock.Now()))
}

func TestTheLoopMakesNoProgressWhileItHandlesAnEvent(t *testing.T) {
	r := newFixture(t)
	r.run(t)
	began := r.clock.Now()
	handling, gate := make(chan struct{}), make(chan struct{})
	r.o.Queue.add(func(context.Context, *Manager) { close(handling); <-gate })
	r.Eventually(handling).Should(gomega.BeClosed())
	r.clock.Step(time.Hour)
	r.Expect(r.Progress()).To(gomega.Equal(began))
	r.o.Queue.Observe(runtime.Pod{UID: "a"}) // does not block
	r.Expect(r.List()).To(gomega.BeEmpty())  // neither do queries
	close(gate)
	r.Eventually(r.Progress).Should(gomega.Equal(r.clock.Now()))
}

func TestAStaticPodStartsWhenItsPredecessorHasBeenReleased(t *testing.T) {
	r := newFixture(t)
	r.run(t)
	old, next := testPod("a", "old"), testPod("a", "new")
	r.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{old}}
	r.Eventually(func() bool { return r.IsKnown("old") }).Should(gomega.BeTrue())
	r.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{next}}
	r.Eventually(r.Waiting).Should(gomega.Equal(1))
	r.Expect(r.IsKnown("new")).To(gomega.BeFalse())
	r.updates <- source.Update{Source: source.File, Removed: []*corev1.Pod{old}}
	r.Eventually(func() bool { return r.IsKnown("new") && !r.IsKnown("old") }).Should(gomega.BeTrue())
	r.Expect(r.Waiting()).To(gomega.BeZero())
}

func TestTheNameOfAPodIsThatOfItsSuccessorWhileItEnds(t *testing.T) {
	r := newFixture(t)
	r.tearDown = make(chan struct{})
	r.run(t)
	t.Cleanup(func() { close(r.tearDown) })
	of := func(uid types.UID) *corev1.Pod {
		p := testPod("a", uid)
		p.Annotations[source.SourceAnnotation] = source.API
		return p
	}
	uid := func() types.UID {
		p, found := r.Get("ns", "a")
		if !found {
			return ""
		}
		return p.UID
	}
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{of("old")}}
	r.Eventually(uid).Should(gomega.Equal(types.UID("old")))
	r.updates <- source.Update{Source: source.API, Removed: []*corev1.Pod{of("old")}}
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{of("new")}}
	r.Eventually(func() bool { return r.IsKnown("new") }).Should(gomega.BeTrue())
	for range 50 { // the order of pods is random
		r.Expect(uid()).To(gomega.Equal(types.UID("new")))
	}
	r.updates <- source.Update{Source: source.API, Removed: []*corev1.Pod{of("new")}}
	r.Eventually(func() bool { return r.get("new").IsRemoved() }).Should(gomega.BeTrue())
	r.Expect(uid()).NotTo(gomega.BeEmpty(), "both end, and still have logs")
}

func TestPodsThatNoSourceHasAreRemovedOnceAllSourcesHaveAnswered(t *testing.T) {
	r := newFixture(t)
	r.Adopt([]runtime.Pod{{UID: "adopted", Namespace: "ns", Name: "a"}, {UID: "orphan", Namespace: "ns", Name: "o"}})
	r.run(t)
	r.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{testPod("a", "adopted")}}
	r.Eventually(func() bool { return r.IsKnown("adopted") }).Should(gomega.BeTrue())
	r.Expect(r.IsKnown("orphan")).To(gomega.BeFalse())
	r.updates <- source.Update{Source: source.HTTP, Ready: true}
	names := func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return append([]string(nil), r.fakes.released...)
	}
	r.Eventually(names).Should(gomega.ConsistOf("o", "")) // "left" has no name
	r.Expect(r.IsKnown("adopted")).To(gomega.BeTrue())
}

func TestEventsFromSeveralGoroutinesAreAllHandled(t *testing.T) {
	r := newFixture(t)
	r.run(t)
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for j := range 10 {
				uid := types.UID(fmt.Sprintf("%d-%d", i, j))
				p := testPod(string(uid), uid)
				r.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{p}}
				r.o.Queue.Observe(runtime.Pod{UID: uid, Observed: pod.Observed{Sequence: 1}})
				r.o.Queue.ProbeResult(uid, pod.ProbeResult{})
				r.o.Queue.ObjectsChanged([]types.UID{uid})
				_, _ = r.List(), r.Count(true)
				r.updates <- source.Update{Source: source.File, Removed: []*corev1.Pod{p}}
			}
		})
	}
	senders.Wait()
	r.Eventually(r.Workers).Should(gomega.BeZero())
	r.Expect(r.Waiting()).To(gomega.BeZero())
}

var _ podworker.Listener = (*Queue)(nil)

// TestAPodThatWasDeletedAtOnceDoesNotKeepOthersFromItsPlace, though its container still stops: the
// scheduler has given its place to others.
func TestAPodThatWasDeletedAtOnceDoesNotKeepOthersFromItsPlace(t *testing.T) {
	r := newFixture(t)
	r.runs = "old"
	r.node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")}
	r.run(t)
	of := func(uid types.UID) *corev1.Pod {
		p := testPod(string(uid), uid)
		p.Annotations[source.SourceAnnotation] = source.API
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		p.Status = corev1.PodStatus{}
		return p
	}
	active := func() (names []string) {
		for _, p := range r.Active() {
			names = append(names, p.Name)
		}
		return names
	}
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{of("old")}}
	r.Eventually(active).Should(gomega.ConsistOf("old"))
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{of("refused")}}
	r.Eventually(func() bool { return r.IsKnown("refused") }).Should(gomega.BeTrue())
	r.updates <- source.Update{Source: source.API, Removed: []*corev1.Pod{of("old")}}
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{of("new")}}
	r.Eventually(active).Should(gomega.ConsistOf("old", "new"))
}
