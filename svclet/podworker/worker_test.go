package podworker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
)

// fakes are all parts that a worker works with. They record what they are told.
type fakes struct {
	mu        sync.Mutex
	performed []pod.Operation
	statuses  []corev1.PodStatus
	events    []pod.Event
	evictions []string
	syncs     []podSync
	health    []corev1.ResourceStatus // of the devices of all containers
	refreshed int
	refresh   func(ctx context.Context) // nil does nothing
	finished  int
	ended     int
	released  []*Worker
	// perform and observe replace operations that succeed at once, and an empty
	// observation; nil replaces nothing.
	perform func(ctx context.Context, op pod.Operation) pod.Result
	observe func() (pod.Observed, error)
}

// podSync is a call of PodSynced.
type podSync struct {
	cause string
	took  time.Duration
}

func (f *fakes) Perform(ctx context.Context, _ *corev1.Pod, _ pod.Observed, op pod.Operation, _ func(time.Duration)) pod.Result {
	f.mu.Lock()
	f.performed = append(f.performed, op)
	perform := f.perform
	f.mu.Unlock()
	if perform == nil {
		return pod.Result{}
	}
	return perform(ctx, op)
}

func (f *fakes) Observe(context.Context, types.UID) (pod.Observed, error) {
	f.mu.Lock()
	observe := f.observe
	f.mu.Unlock()
	if observe == nil {
		return pod.Observed{}, nil
	}
	return observe()
}

func (f *fakes) Refresh(ctx context.Context, _ *corev1.Pod) {
	f.note(func() { f.refreshed++ })
	if f.refresh != nil {
		f.refresh(ctx)
	}
}

func (f *fakes) PodIP(*corev1.Pod, pod.Observed) string           { return "" }
func (f *fakes) Sync(types.UID, *corev1.Pod, string, []pod.Probe) {}
func (f *fakes) Remove(types.UID)                                 {}
func (f *fakes) RemovePod(types.UID) error                        { return nil }
func (f *fakes) PodRunning(_, _, _ time.Duration)                 {}
func (f *fakes) PodSynced(cause string, took time.Duration) {
	f.note(func() { f.syncs = append(f.syncs, podSync{cause, took}) })
}
func (f *fakes) Of(*corev1.Pod, string) []corev1.ResourceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health
}
func (f *fakes) Finish(*corev1.Pod)    { f.note(func() { f.finished++ }) }
func (f *fakes) PodEnded()             { f.note(func() { f.ended++ }) }
func (f *fakes) PodReleased(w *Worker) { f.note(func() { f.released = append(f.released, w) }) }
func (f *fakes) PodEvicted(signal string) {
	f.note(func() { f.evictions = append(f.evictions, signal) })
}
func (f *fakes) Event(_ *corev1.Pod, e pod.Event) { f.note(func() { f.events = append(f.events, e) }) }
func (f *fakes) Set(_ *corev1.Pod, s corev1.PodStatus) {
	f.note(func() { f.statuses = append(f.statuses, s) })
}

func (f *fakes) note(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// operations returns the operations that have started.
func (f *fakes) operations() []pod.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.performed)
}

// count returns a count under the lock.
func (f *fakes) count(of func() int) func() int {
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return of()
	}
}

// fixture is a worker with its fakes.
type fixture struct {
	*gomega.WithT
	*fakes
	worker     *Worker
	clock      *testingclock.FakeClock
	goroutines sync.WaitGroup
}

func newFixture(t *testing.T, change ...func(*Start)) *fixture {
	t.Helper()
	none := goleak.IgnoreCurrent()
	r := &fixture{WithT: gomega.NewWithT(t), fakes: &fakes{}, clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))}
	r.SetDefaultEventuallyTimeout(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	s := Start{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		},
		Known: r.clock.Now(),
	}
	for _, f := range change {
		f(&s)
	}
	r.worker = New(ctx, Options{
		Executor: r, Probes: r, Statuses: r, Logs: r, Events: r, Metrics: r, Listener: r, Health: r,
		Node: func() pod.Node { return pod.Node{} }, Clock: r.clock, Goroutines: &r.goroutines,
	}, s)
	t.Cleanup(func() {
		cancel()
		r.goroutines.Wait()
		leaks.None(t, none)
	})
	return r
}

// failSetUp fails to set pods up, so that their machines wait for the next retry.
func failSetUp(_ context.Context, op pod.Operation) pod.Result {
	if op.Kind == pod.SetUp {
		return pod.Result{Reason: "FailedMount", Message: "not yet"}
	}
	return pod.Result{}
}

func TestAnOperationReplacesAnotherOfItsKeyOnceThatHasEnded(t *testing.T) {
	r := newFixture(t)
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	t.Cleanup(end)
	stops := func() []pod.Operation {
		// The machine asks for operations of other kinds.
		return slices.DeleteFunc(r.operations(), func(op pod.Operation) bool { return op.Kind != pod.StopContainer })
	}
	r.perform = func(ctx context.Context, op pod.Operation) pod.Result {
		if op.Grace == time.Minute {
			<-ctx.Done()
			<-over
		}
		return pod.Result{}
	}
	slow := pod.Operation{Kind: pod.StopContainer, ID: "c", Grace: time.Minute}
	fast := pod.Operation{Kind: pod.StopContainer, ID: "c"}
	r.worker.startOperation(slow)
	r.Eventually(stops).Should(gomega.HaveLen(1))
	r.worker.startOperation(fast)
	other := pod.Operation{Kind: pod.StopContainer, ID: "d"}
	r.worker.startOperation(other) // It has another key, and does not wait.
	r.Eventually(stops).Should(gomega.ConsistOf(slow, other))
	end()
	r.Eventually(stops).Should(gomega.ConsistOf(slow, other, fast))
}

func TestTheMachineLearnsOfTheEndOfAnOperationWithAnObservationAfterIt(t *testing.T) {
	r := newFixture(t)
	asked := 0
	r.observe = func() (pod.Observed, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if asked++; asked < 3 {
			return pod.Observed{}, errors.New("the runtime does not answer")
		}
		return pod.Observed{Sequence: 7}, nil
	}
	r.worker.startOperation(pod.Operation{Kind: pod.StopContainer, ID: "c"})
	r.Eventually(func() bool {
		r.clock.Step(maxObserveRetry)
		return r.worker.Observed().Sequence == 7
	}).Should(gomega.BeTrue())
	r.Expect(r.count(func() int { return asked })()).To(gomega.BeNumerically(">=", 3))
}

func TestAnOlderObservationIsDropped(t *testing.T) {
	r := newFixture(t)
	r.worker.Observe(pod.Observed{Sequence: 5})
	r.worker.Observe(pod.Observed{Sequence: 4, Sandboxes: []pod.Sandbox{{ID: "gone"}}})
	r.worker.Observe(pod.Observed{Sequence: 6})
	r.Eventually(func() uint64 { return r.worker.Observed().Sequence }).Should(gomega.BeNumerically("==", 6))
	r.Expect(r.worker.Observed().Sandboxes).To(gomega.BeEmpty())
}

func TestTheHealthOfDevicesIsShownAndStaysWhenTheyAreReleased(t *testing.T) {
	r := newFixture(t)
	r.perform = failSetUp
	shown := func() []corev1.ResourceStatus {
		r.mu.Lock()
		defer r.mu.Unlock()
		last := r.statuses[len(r.statuses)-1]
		return last.ContainerStatuses[0].AllocatedResourcesStatus
	}
	is := func(health corev1.ResourceHealthStatus) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{{ResourceID: "a", Health: health}}}}
	}
	written := r.count(func() int { return len(r.statuses) })
	r.worker.Start()
	r.Eventually(written).Should(gomega.BeNumerically(">", 0))
	r.Expect(shown()).To(gomega.BeEmpty())
	for _, health := range []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy} {
		r.note(func() { r.health = is(health) })
		r.worker.HealthChanged()
		r.Eventually(shown).Should(gomega.Equal(is(health)))
	}
	r.note(func() { r.health = nil })
	before := written()
	r.worker.HealthChanged()
	r.Eventually(written).Should(gomega.BeNumerically(">", before))
	r.Expect(shown()).To(gomega.Equal(is(corev1.ResourceHealthStatusUnhealthy)))
}

func TestAFailedOperationIsRetriedAfterABackoff(t *testing.T) {
	r := newFixture(t)
	r.perform = failSetUp
	r.worker.Start()
	r.Eventually(r.operations).Should(gomega.HaveLen(1))
	r.Eventually(func() int {
		r.clock.Step(10 * time.Second)
		return len(r.operations())
	}).Should(gomega.BeNumerically(">", 2))
	for _, op := range r.operations() {
		r.Expect(op.Kind).To(gomega.Equal(pod.SetUp))
	}
}

func TestAnIdleWorkerHasNoGoroutine(t *testing.T) {
	none := goleak.IgnoreCurrent()
	r := newFixture(t)
	r.perform = failSetUp
	r.worker.Start()
	r.Eventually(r.operations).Should(gomega.HaveLen(1))
	r.goroutines.Wait()
	leaks.None(t, none)
}

func TestARemovedPodIsReleasedOnceAndItsWorkerStops(t *testing.T) {
	r := newFixture(t)
	r.worker.Start()
	r.worker.Remove()
	r.Eventually(r.count(func() int { return len(r.released) })).Should(gomega.Equal(1))
	r.goroutines.Wait()
	r.Expect(r.released).To(gomega.Equal([]*Worker{r.worker}))
	r.Expect(r.ended).To(gomega.Equal(1))
	r.Expect(r.worker.HasEnded()).To(gomega.BeTrue())
	statuses, finished := len(r.statuses), r.finished
	late := pod.Observed{Sequence: 2, Sandboxes: []pod.Sandbox{{ID: "late"}}}
	r.worker.Observe(late)
	r.worker.Update(r.worker.Pod())
	r.goroutines.Wait()
	r.Expect(r.statuses).To(gomega.HaveLen(statuses))
	r.Expect(r.finished).To(gomega.Equal(finished))
	r.Expect(r.released).To(gomega.HaveLen(1))
	r.Expect(r.worker.Observed()).To(gomega.Equal(late)) // The table's owner handles it.
}

func TestAnOrphanedPodIsRemovedWithoutAStatus(t *testing.T) {
	r := newFixture(t, func(s *Start) { s.Orphaned = true })
	r.worker.Start()
	r.Eventually(r.count(func() int { return len(r.released) })).Should(gomega.Equal(1))
	r.goroutines.Wait()
	r.Expect(r.statuses).To(gomega.BeEmpty())
	r.Expect(r.worker.IsActive()).To(gomega.BeFalse())
}

func TestARejectedPodFailsAndIsNotActive(t *testing.T) {
	r := newFixture(t, func(s *Start) { s.Rejection = &Rejection{Reason: "OutOfcpu", Message: "no"} })
	r.worker.Start()
	r.Eventually(func() corev1.PodPhase { return r.worker.Status().Phase }).Should(gomega.Equal(corev1.PodFailed))
	r.Expect(r.worker.Status().Reason).To(gomega.Equal("OutOfcpu"))
	r.Expect(r.worker.IsActive()).To(gomega.BeFalse())
}

func TestAnUnobservedPodIsObservedBeforeTheMachineDecides(t *testing.T) {
	r := newFixture(t, func(s *Start) { s.Unobserved = true })
	answer := make(chan struct{})
	r.observe = func() (pod.Observed, error) {
		<-answer
		return pod.Observed{Sequence: 3}, nil
	}
	r.worker.Start()
	r.Expect(r.operations()).To(gomega.BeEmpty())
	close(answer)
	r.Eventually(r.operations).ShouldNot(gomega.BeEmpty())
	r.Expect(r.worker.Observed().Sequence).To(gomega.BeNumerically("==", 3))
}

func TestAPodWaitsForThePodsThatItPreempts(t *testing.T) {
	gate := make(chan struct{})
	r := newFixture(t, func(s *Start) {
		s.Wait = func(ctx context.Context) *Rejection {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return nil
		}
	})
	r.worker.Start()
	r.worker.Update(r.worker.Pod())
	r.Expect(r.operations()).To(gomega.BeEmpty())
	close(gate)
	r.Eventually(r.operations).ShouldNot(gomega.BeEmpty())
}

func TestAPodThatIsRejectedAfterItsWaitFails(t *testing.T) {
	gate := make(chan struct{})
	r := newFixture(t, func(s *Start) {
		s.Wait = func(context.Context) *Rejection {
			<-gate
			return &Rejection{Reason: "UnexpectedAdmissionError", Message: "no device"}
		}
	})
	r.worker.Start()
	r.Expect(r.worker.IsActive()).To(gomega.BeTrue())
	close(gate)
	r.Eventually(func() corev1.PodPhase { return r.worker.Status().Phase }).Should(gomega.Equal(corev1.PodFailed))
	r.Expect(r.worker.Status().Reason).To(gomega.Equal("UnexpectedAdmissionError"))
	r.Expect(r.worker.IsActive()).To(gomega.BeFalse())
	r.Expect(r.operations()).NotTo(gomega.ContainElement(gomega.HaveField("Kind", pod.SetUp)))
}

func TestAPodThatIsRemovedWhileItWaitsIsNotStarted(t *testing.T) {
	gate := make(chan struct{})
	r := newFixture(t, func(s *Start) {
		s.Wait = func(context.Context) *Rejection { <-gate; return nil }
	})
	r.worker.Start()
	r.worker.Remove()
	close(gate)
	r.Eventually(r.count(func() int { return len(r.released) })).Should(gomega.Equal(1))
	r.Expect(r.operations()).NotTo(gomega.ContainElement(gomega.HaveField("Kind", pod.SetUp)))
}

func TestAPodIsEvictedOnce(t *testing.T) {
	r := newFixture(t)
	r.worker.Start()
	for range 2 {
		r.worker.Evict(pod.Eviction{Reason: "Evicted", Message: "too large", Signal: "emptydirfs.limit", Grace: new(int64)})
	}
	r.Eventually(func() corev1.PodPhase { return r.worker.Status().Phase }).Should(gomega.Equal(corev1.PodFailed))
	r.goroutines.Wait()
	r.Expect(r.evictions).To(gomega.Equal([]string{"emptydirfs.limit"}))
}

func TestAnEvictedPodIsReleasedOnceItsResourcesAre(t *testing.T) {
	r, gate := newFixture(t), make(chan struct{})
	r.perform = func(_ context.Context, op pod.Operation) pod.Result {
		if op.Kind == pod.TearDown {
			<-gate
		}
		return pod.Result{}
	}
	annotations := map[string]string{"starved_resource": "memory"}
	r.worker.Start()
	r.worker.Evict(pod.Eviction{Reason: "Evicted", Annotations: annotations, Grace: new(int64)})
	<-r.worker.Ended()
	r.Expect(r.worker.IsReleased()).To(gomega.BeFalse())
	close(gate)
	r.Eventually(r.worker.IsReleased).Should(gomega.BeTrue())
	r.goroutines.Wait()
	r.Expect(r.events).To(gomega.ContainElement(gomega.HaveField("Annotations", annotations)))
}

func TestVolumesAreRefreshedIfLabelsOrAnnotationsChange(t *testing.T) {
	r := newFixture(t)
	r.perform = failSetUp
	same := r.worker.Pod().DeepCopy()
	r.worker.Update(same)
	labelled := same.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	r.worker.Update(labelled)
	r.goroutines.Wait()
	r.Expect(r.refreshed).To(gomega.Equal(1))
}

func TestRefreshesDuringOneCauseOneMore(t *testing.T) {
	r, gate := newFixture(t), make(chan struct{})
	r.refresh = func(context.Context) { <-gate }
	for range 30 {
		r.worker.Refresh()
	}
	close(gate)
	r.goroutines.Wait()
	r.Expect(r.refreshed).To(gomega.Equal(2))
	r.worker.Refresh()
	r.goroutines.Wait()
	r.Expect(r.refreshed).To(gomega.Equal(3))
}

func TestTheEndOfAPodCancelsItsRefresh(t *testing.T) {
	r, begun := newFixture(t), make(chan struct{})
	r.refresh = func(ctx context.Context) { // as of a driver that does not respond
		close(begun)
		<-ctx.Done()
	}
	r.worker.Start()
	r.worker.Refresh()
	<-begun
	r.worker.Refresh() // pending
	r.worker.Remove()
	r.Eventually(r.count(func() int { return len(r.released) })).Should(gomega.Equal(1))
	r.goroutines.Wait()
	r.worker.Refresh()
	r.goroutines.Wait()
	r.Expect(r.refreshed).To(gomega.Equal(1))
}

func TestInputsFromSeveralGoroutinesAreAllHandled(t *testing.T) {
	r := newFixture(t)
	r.perform = failSetUp
	r.worker.Start()
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for i := range 50 {
				r.worker.Observe(pod.Observed{Sequence: uint64(i)})
				r.worker.Update(r.worker.Pod())
				r.worker.Probe(pod.ProbeResult{ContainerID: "c"})
				_, _ = r.worker.IsActive(), r.worker.PodWithStatus()
			}
		})
	}
	senders.Wait()
	r.worker.Remove()
	r.Eventually(r.count(func() int { return len(r.released) })).Should(gomega.Equal(1))
	r.goroutines.Wait()
}

func TestASyncIsMeasuredUntilItsOperationsHaveEnded(t *testing.T) {
	r, gate := newFixture(t), make(chan struct{})
	r.perform = func(ctx context.Context, op pod.Operation) pod.Result {
		<-gate
		return failSetUp(ctx, op)
	}
	syncs := func() []podSync {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.syncs)
	}
	r.worker.Start()
	r.Eventually(r.operations).Should(gomega.HaveLen(1))
	r.worker.Update(r.worker.Pod())
	r.clock.Step(3 * time.Second)
	r.Expect(syncs()).To(gomega.BeEmpty())
	close(gate)
	r.Eventually(syncs).Should(gomega.Equal([]podSync{{causeCreate, 3 * time.Second}}))
	r.worker.Update(r.worker.Pod())
	r.Eventually(syncs).Should(gomega.HaveLen(2))
	r.worker.Probe(pod.ProbeResult{ContainerID: "c"})
	r.Eventually(syncs).Should(gomega.HaveLen(3))
	r.worker.Remove()
	r.Eventually(syncs).Should(gomega.Equal([]podSync{{causeCreate, 3 * time.Second}, {causeUpdate, 0}, {causeSync, 0}, {causeKill, 0}}))
}
