package svclet

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
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/pod"
)

// stage is what a worker works on in a test.
type stage struct {
	*gomega.WithT
	worker *worker
	clock  *testingclock.FakeClock
	group  sync.WaitGroup

	mu        sync.Mutex
	performed []pod.Operation
	// perform does an operation, look looks; nil is at once and at nothing.
	do     func(ctx context.Context, op pod.Operation) pod.Result
	lookAt func() (pod.Observed, error)
	shown  []pod.Output
}

func newStage(t *testing.T) *stage {
	t.Helper()
	none := goleak.IgnoreCurrent()
	s := &stage{WithT: gomega.NewWithT(t), clock: testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))}
	s.SetDefaultEventuallyTimeout(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	s.worker = newWorker(ctx, &s.group, s, s.clock, p, pod.Options{})
	t.Cleanup(func() {
		cancel()
		s.worker.stop()
		s.group.Wait()
		leaks.None(t, none)
	})
	return s
}

func (s *stage) perform(ctx context.Context, _ *worker, op pod.Operation) pod.Result {
	s.mu.Lock()
	s.performed = append(s.performed, op)
	do := s.do
	s.mu.Unlock()
	if do == nil {
		return pod.Result{}
	}
	return do(ctx, op)
}

func (s *stage) look(context.Context, *corev1.Pod) (pod.Observed, error) {
	s.mu.Lock()
	lookAt := s.lookAt
	s.mu.Unlock()
	if lookAt == nil {
		return pod.Observed{}, nil
	}
	return lookAt()
}

func (s *stage) show(_ *worker, _ *corev1.Pod, _ pod.Observed, out pod.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = append(s.shown, out)
}

func (s *stage) done() []pod.Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pod.Operation(nil), s.performed...)
}

func TestAnOperationReplacesAnotherOfItsKeyOnceThatHasEnded(t *testing.T) {
	s := newStage(t)
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over) })
	t.Cleanup(end)
	stops := func() []pod.Operation {
		// The machine has ideas of its own.
		return slices.DeleteFunc(s.done(), func(op pod.Operation) bool { return op.Kind != pod.StopContainer })
	}
	s.do = func(ctx context.Context, op pod.Operation) pod.Result {
		if op.Grace == time.Minute {
			<-ctx.Done()
			<-over
		}
		return pod.Result{}
	}
	slow := pod.Operation{Kind: pod.StopContainer, ID: "c", Grace: time.Minute}
	fast := pod.Operation{Kind: pod.StopContainer, ID: "c"}
	s.worker.start(slow)
	s.Eventually(stops).Should(gomega.HaveLen(1))
	s.worker.start(fast)
	other := pod.Operation{Kind: pod.StopContainer, ID: "d"}
	s.worker.start(other) // has another key, and waits for nobody
	s.Eventually(stops).Should(gomega.ConsistOf(slow, other))
	end()
	s.Eventually(stops).Should(gomega.ConsistOf(slow, other, fast))
}

func TestTheMachineHearsOfAnOperationOnlyWithWhatTheRuntimeShowsAfterIt(t *testing.T) {
	s := newStage(t)
	looks := 0
	s.lookAt = func() (pod.Observed, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if looks++; looks < 3 {
			return pod.Observed{}, errors.New("the runtime is away")
		}
		return pod.Observed{Sequence: 7}, nil
	}
	s.worker.start(pod.Operation{Kind: pod.StopContainer, ID: "c"})
	s.Eventually(func() bool {
		s.clock.Step(lastLookAgain)
		return s.worker.seen().Sequence == 7
	}).Should(gomega.BeTrue())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Expect(looks).To(gomega.BeNumerically(">=", 3))
}

func TestAnObservationDoesNotUndoANewerOne(t *testing.T) {
	s := newStage(t)
	s.worker.observe(pod.Observed{Sequence: 5})
	s.worker.observe(pod.Observed{Sequence: 4, Sandboxes: []pod.Sandbox{{ID: "gone"}}})
	s.worker.observe(pod.Observed{Sequence: 6})
	s.Eventually(func() uint64 { return s.worker.seen().Sequence }).Should(gomega.BeNumerically("==", 6))
	s.Expect(s.worker.seen().Sandboxes).To(gomega.BeEmpty())
}

func TestAWorkerAsksItsMachineAgainWhenThatWantsToBeAsked(t *testing.T) {
	s := newStage(t)
	s.do = func(_ context.Context, op pod.Operation) pod.Result {
		return pod.Result{Reason: "FailedMount", Message: "not yet"}
	}
	s.worker.observe(pod.Observed{})
	s.Eventually(s.done).Should(gomega.HaveLen(1))
	s.Eventually(func() int {
		s.clock.Step(10 * time.Second)
		return len(s.done())
	}).Should(gomega.BeNumerically(">", 2))
	for _, op := range s.done() {
		s.Expect(op.Kind).To(gomega.Equal(pod.SetUp))
	}
}

func TestAWorkerAtRestHasNoGoroutine(t *testing.T) {
	none := goleak.IgnoreCurrent()
	s := newStage(t)
	s.do = func(context.Context, pod.Operation) pod.Result {
		return pod.Result{Reason: "FailedMount", Message: "no"}
	}
	s.worker.observe(pod.Observed{})
	s.Eventually(s.done).Should(gomega.HaveLen(1))
	s.group.Wait()
	leaks.None(t, none)
}

func TestAWorkerThatIsOverShowsNothingMore(t *testing.T) {
	s := newStage(t)
	s.worker.machine.Remove()
	s.worker.observe(pod.Observed{Sequence: 1})
	s.Eventually(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.shown) > 0 && s.shown[len(s.shown)-1].Released
	}).Should(gomega.BeTrue())
	s.worker.stop()
	s.group.Wait()
	shown := len(s.shown)
	s.worker.observe(pod.Observed{Sequence: 2})
	s.group.Wait()
	s.Expect(s.shown).To(gomega.HaveLen(shown))
}
