package podworker

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
)

// Worker drives the state machine of one pod. It has a goroutine only while there
// is something to do. Its methods may be called from any goroutine.
type Worker struct {
	o Options
	// ctx ends when the agent stops. Operations are cancelled then; the pod's
	// containers keep running.
	ctx   context.Context
	start Start
	// refreshes is the context of refreshes of the volumes. endRefreshes ends it, when the pod
	// has ended: its volumes are to be unmounted.
	refreshes    context.Context
	endRefreshes context.CancelFunc
	// ended is closed when no container runs any more and none will.
	ended chan struct{}

	// The following fields belong to the goroutine that runs work.
	machine       *pod.Machine
	unobserved    bool
	waited        bool
	endReported   bool
	startMeasured bool
	// health is what was shown last of the devices of containers, by their names.
	health map[string][]corev1.ResourceStatus

	mu    sync.Mutex
	inbox []func(*pod.Machine)
	// running means that a goroutine runs work.
	running bool
	// syncCause and syncBegan are those of the sync in progress, empty if there is none.
	syncCause string
	syncBegan time.Time
	// stopped means that the worker does nothing more: its pod has been released.
	stopped bool
	// removed means that no source has the pod any more.
	removed bool
	evicted bool
	// rejection is why the node does not admit the pod; nil if it does.
	rejection *Rejection
	// refreshing means that the volumes are being refreshed, refreshPending that they are to be
	// refreshed again after that.
	refreshing, refreshPending bool
	// released means that the node has got back everything that the pod used.
	released   bool
	pod        *corev1.Pod
	observed   pod.Observed
	status     corev1.PodStatus
	operations map[string]*operation // in flight, by their keys
	pulling    time.Duration         // that images have been pulled for
	timer      clock.Timer
}

// New returns a worker that does nothing before [Worker.Start].
func New(ctx context.Context, o Options, s Start) *Worker {
	w := &Worker{
		o: o, ctx: ctx, start: s, ended: make(chan struct{}),
		machine: pod.New(s.Pod, s.Machine), unobserved: s.Unobserved,
		removed: s.Orphaned, rejection: s.Rejection, pod: s.Pod, operations: map[string]*operation{}, health: map[string][]corev1.ResourceStatus{},
	}
	w.refreshes, w.endRefreshes = context.WithCancel(ctx)
	return w
}

// Start starts the machine with what is known of the pod. It is called once.
func (w *Worker) Start() {
	w.enqueue(causeCreate, func(m *pod.Machine) {
		if w.start.Orphaned {
			m.Remove()
		}
		w.observe(w.start.Observed)
		if r := w.rejected(); r != nil {
			m.Reject(r.Reason, r.Message)
		}
	})
}

// enqueue adds an input to the inbox. The machine gets inputs in the order of the
// calls, and decides after them what to do.
func (w *Worker) enqueue(cause string, input func(*pod.Machine)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(cause, input)
}

// add is enqueue for a caller that holds mu.
func (w *Worker) add(cause string, input func(*pod.Machine)) {
	if w.stopped || w.ctx.Err() != nil {
		return
	}
	w.noteCause(cause)
	w.inbox = append(w.inbox, input)
	if !w.running {
		w.running = true
		w.o.Goroutines.Go(w.work)
	}
}

// work passes inputs from the inbox to the machine until the inbox is empty.
func (w *Worker) work() {
	for {
		w.prepare()
		inbox, p := w.receive(w.o.Clock.Now())
		if len(inbox) == 0 {
			return
		}
		for _, input := range inbox {
			input(w.machine)
		}
		w.machine.SetNode(w.o.Node())
		now := w.o.Clock.Now()
		out := w.machine.Next(now)
		for _, op := range out.Start {
			w.startOperation(op)
		}
		w.wakeAt(now, out.Wake)
		w.showHealth(p, &out.Status)
		w.setStatus(out)
		w.report(p, w.Observed(), out)
		if out.Released && w.finish(now) {
			w.o.Listener.PodReleased(w)
			return
		}
	}
}

// receive returns the inbox, and the pod that belongs to it. If the inbox is empty
// or the worker is to end, it returns nothing: the goroutine must return.
func (w *Worker) receive(now time.Time) ([]func(*pod.Machine), *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	inbox := w.inbox
	w.inbox = nil
	if w.stopped || w.ctx.Err() != nil {
		inbox = nil
	}
	w.running = len(inbox) > 0
	w.measureSync(now)
	return inbox, w.pod
}

// prepare waits until the machine may decide: pods for whose resources this one waits have
// ended, and the runtime has answered what it holds of the pod. It returns early if the agent
// stops.
func (w *Worker) prepare() {
	if wait := w.start.Wait; wait != nil && !w.waited {
		w.waited = true
		if r := wait(w.ctx); r != nil {
			w.mu.Lock()
			w.rejection = r
			w.mu.Unlock()
		}
	}
	if w.unobserved {
		observed, err := w.observeRuntime()
		if err != nil {
			return // The agent stops.
		}
		w.unobserved = false
		w.observe(observed)
	}
}

// wakeAt sets the time at which the machine decides again if it has no input until
// then; zero for never.
func (w *Worker) wakeAt(now, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if at.IsZero() {
		return
	}
	w.timer = w.o.Clock.AfterFunc(max(at.Sub(now), 0), func() { w.enqueue(causeSync, func(*pod.Machine) {}) })
}

// finish stops the worker if no source has its pod any more, and reports whether
// it did. It does not if there is another input.
func (w *Worker) finish(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.removed || len(w.inbox) > 0 {
		return false
	}
	w.stopped, w.running = true, false
	w.measureSync(now)
	if w.timer != nil {
		w.timer.Stop()
	}
	return true
}

// Bounds of the pause before the runtime is asked again after it has failed to
// answer.
const (
	minObserveRetry = 100 * time.Millisecond
	maxObserveRetry = 5 * time.Second
)

// observeRuntime asks the runtime what it holds of the pod until it answers: the
// machine must not decide on an observation older than its own last operation. It
// returns an error only when the agent stops.
func (w *Worker) observeRuntime() (pod.Observed, error) {
	for pause := minObserveRetry; ; pause = min(2*pause, maxObserveRetry) {
		p := w.Pod()
		observed, err := w.o.Executor.Observe(w.ctx, p.UID)
		if err == nil {
			return observed, nil
		}
		if w.ctx.Err() != nil {
			return pod.Observed{}, w.ctx.Err()
		}
		klog.FromContext(w.ctx).V(2).Info("Failed to observe pod in the container runtime, will retry", "pod", klog.KObj(p), "podUID", p.UID, "err", err)
		select {
		case <-w.ctx.Done():
			return pod.Observed{}, w.ctx.Err()
		case <-w.o.Clock.After(pause):
		}
	}
}
