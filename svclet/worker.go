package svclet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/pod"
)

// worker runs the machine of one pod: it hands it what has happened, and does
// what it says. It has a goroutine only while there is something to do.
type worker struct {
	hands hands
	clock clock.WithDelayedExecution
	// ctx ends when the agent stops; operations that run then are given up,
	// the pod's containers go on.
	ctx   context.Context
	group *sync.WaitGroup // what ends after ctx

	mu      sync.Mutex
	inbox   []func(*pod.Machine)
	busy    bool // a goroutine empties the inbox
	over    bool // nobody needs the worker any more
	pod     *corev1.Pod
	machine *pod.Machine // belongs to the goroutine that is busy
	// observed is the newest observation.
	observed pod.Observed
	flights  map[string]*flight
	// orphan says that nobody but the runtime knows the pod, adopted that it
	// ran before the agent did.
	orphan, adopted bool
	// blind says that the runtime has not yet said what it has of the pod, and
	// has to before the machine is asked anything.
	blind bool
	// before, if set, has to return before the machine is asked anything.
	before func()
	// began is when the agent first heard of the pod, pulling how long images
	// have been pulled for it, in nanoseconds; counted says that its start has
	// been measured.
	began   time.Time
	pulling atomic.Int64
	counted bool
	// shared says that what the pod has left was shared among the others.
	shared bool
	timer  clock.Timer
	// status is the newest one, ended and released what its output said.
	status          corev1.PodStatus
	ended, released bool
	// finished is closed when no container runs any more, and none will.
	finished chan struct{}
}

// flight is an operation that runs.
type flight struct {
	operation pod.Operation
	cancel    context.CancelFunc
	replaced  bool
	next      *pod.Operation // what takes its place once it has ended
}

// hands are what a worker does its work with. The worker calls them from one
// goroutine at a time, except for perform and look.
type hands interface {
	// perform does an operation, and returns when it is done or ctx is.
	perform(ctx context.Context, w *worker, op pod.Operation) pod.Result
	// look returns what the runtime holds of a pod now.
	look(ctx context.Context, p *corev1.Pod) (pod.Observed, error)
	// show is given each output of the machine.
	show(w *worker, p *corev1.Pod, seen pod.Observed, out pod.Output)
}

func newWorker(ctx context.Context, group *sync.WaitGroup, h hands, c clock.WithDelayedExecution, p *corev1.Pod, o pod.Options) *worker {
	return &worker{
		hands: h, clock: c, ctx: ctx, group: group,
		pod: p, machine: pod.New(p, o), flights: map[string]*flight{}, began: c.Now(), finished: make(chan struct{}),
	}
}

// tell hands something to the machine, in the order of the calls, and has the
// machine say what follows from it.
func (w *worker) tell(what func(*pod.Machine)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.ctx.Err() != nil {
		return
	}
	w.inbox = append(w.inbox, what)
	if w.busy {
		return
	}
	w.busy = true
	w.group.Go(w.work)
}

// update makes p what is wanted from now on.
func (w *worker) update(p *corev1.Pod) {
	w.mu.Lock()
	w.pod = p
	w.mu.Unlock()
	w.tell(func(m *pod.Machine) { m.Update(p) })
}

// observe hands an observation to the machine, unless a newer one was there
// before.
func (w *worker) observe(seen pod.Observed) { w.tell(w.newer(seen)) }

func (w *worker) newer(seen pod.Observed) func(*pod.Machine) {
	return func(m *pod.Machine) {
		w.mu.Lock()
		outdated := seen.Sequence < w.observed.Sequence
		if !outdated {
			w.observed = seen
		}
		w.mu.Unlock()
		if !outdated {
			m.Observe(seen)
		}
	}
}

// seen is the newest observation.
func (w *worker) seen() pod.Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

// current returns the pod as it is wanted, with the status that this node gives
// it.
func (w *worker) current() (*corev1.Pod, corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.status
}

// work empties the inbox.
func (w *worker) work() {
	for {
		w.mu.Lock()
		inbox := w.inbox
		w.inbox = nil
		if len(inbox) == 0 || w.over || w.ctx.Err() != nil {
			w.busy = false
			w.mu.Unlock()
			return
		}
		p := w.pod
		w.mu.Unlock()

		if w.before != nil {
			w.before()
			w.before = nil
			if w.ctx.Err() != nil {
				continue
			}
		}
		if w.blind {
			seen, known := w.lookUntilSeen()
			if !known {
				continue
			}
			w.blind = false
			w.newer(seen)(w.machine)
		}
		for _, what := range inbox {
			what(w.machine)
		}
		now := w.clock.Now()
		out := w.machine.Next(now)
		for _, op := range out.Start {
			w.start(op)
		}
		w.wakeAt(now, out.Wake)
		w.mu.Lock()
		if out.Ended && !w.ended {
			close(w.finished)
		}
		w.status, w.ended, w.released = out.Status, out.Ended, out.Released
		w.mu.Unlock()
		w.hands.show(w, p, w.seen(), out)
	}
}

// wakeAt sets the time of the next question to the machine, if nothing happens
// before.
func (w *worker) wakeAt(now, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if at.IsZero() {
		return
	}
	w.timer = w.clock.AfterFunc(max(at.Sub(now), 0), func() { w.tell(func(*pod.Machine) {}) })
}

// start starts an operation, or has it follow the one that it replaces.
func (w *worker) start(op pod.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.flights[op.Key()]; f != nil {
		f.replaced, f.next = true, &op
		f.cancel()
		return
	}
	w.fly(op)
}

// fly runs an operation. It is called with the lock held.
func (w *worker) fly(op pod.Operation) {
	ctx, cancel := context.WithCancel(w.ctx)
	f := &flight{operation: op, cancel: cancel}
	w.flights[op.Key()] = f
	w.group.Go(func() {
		defer cancel()
		result := w.hands.perform(ctx, w, op)
		seen, known := w.lookUntilSeen()
		w.mu.Lock()
		result.Cancelled = f.replaced
		delete(w.flights, op.Key())
		if f.next != nil && known {
			w.fly(*f.next)
		}
		w.mu.Unlock()
		if known {
			w.tell(func(m *pod.Machine) {
				m.Done(op, result)
				w.newer(seen)(m)
			})
		}
	})
}

func (w *worker) wanted() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// Bounds of the time between two looks at a runtime that does not answer.
const (
	firstLookAgain = 100 * time.Millisecond
	lastLookAgain  = 5 * time.Second
)

// lookUntilSeen returns what the runtime holds of the pod. Without that the
// machine would decide on what it saw before the operation, so this goes on
// until the runtime answers; it returns false when the agent stops.
func (w *worker) lookUntilSeen() (pod.Observed, bool) {
	for wait := firstLookAgain; ; wait = min(2*wait, lastLookAgain) {
		p := w.wanted()
		seen, err := w.hands.look(w.ctx, p)
		if err == nil {
			return seen, true
		}
		if w.ctx.Err() != nil {
			return pod.Observed{}, false
		}
		klog.FromContext(w.ctx).V(2).Info("The runtime does not say what has become of a pod", "pod", klog.KObj(p), "err", err)
		select {
		case <-w.ctx.Done():
			return pod.Observed{}, false
		case <-w.clock.After(wait):
		}
	}
}

// stop ends a worker that nobody needs any more. Whatever it is still told, it
// shows nothing after that: there may be another one for its pod.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// hasEnded reports whether no container of the pod runs any more, and none
// will.
func (w *worker) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}
