// Package queue owns the order in which pending pods are scheduled.
//
// A pod is active (ordered by priority, then by time), or unschedulable: then it
// waits for an event that may make it schedulable, and backs off before it is
// retried. A pod with scheduling gates waits until they are removed.
// The package has no goroutine and no lock. It belongs to the goroutine that
// decides, which handles an event either before a decision, which then includes
// it, or afterwards, when the pod waits already: no event is lost in between.
package queue

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// The times are those of kube-scheduler.
const (
	// InitialBackoff is the backoff of a pod after its first failure. It doubles
	// with each further failure until MaxBackoff.
	InitialBackoff = time.Second
	MaxBackoff     = 10 * time.Second
	// MaxWait is how long a pod waits for an event before it is retried anyway.
	MaxWait = 5 * time.Minute
)

// Events is a set of kinds of events, which the caller defines.
type Events uint32

// Queue holds pods by UID.
type Queue struct {
	now      func() time.Time
	entries  map[types.UID]*entry
	sequence uint64

	// active is ordered by priority, the others by the end of their backoff or wait.
	active, failed, waiting *sorted
	backoff                 backoffHeap
	// early is set if the last pod was popped during its backoff.
	early bool
	// waitingFor are the entries of waiting by the events that they wait for.
	waitingFor map[Events]map[types.UID]*entry
}

// entry is a pod in one of the heaps, or in none: gated or in flight.
type entry struct {
	pod      *corev1.Pod
	sequence uint64 // the order in which pods were added, or failed last

	// unschedulable and failed count decisions without a node, and other failures
	// since then. The pod backs off until backoffEnd.
	unschedulable, failed int
	backoffEnd            time.Time
	expires               time.Time // the end of the wait for events
	events                Events
	gated                 bool

	in    entries
	index [2]int // in the heaps of in
}

// New returns an empty queue.
func New(now func() time.Time) *Queue {
	return &Queue{
		now:        now,
		entries:    map[types.UID]*entry{},
		active:     &sorted{less: byPriority},
		backoff:    newBackoffHeap(),
		failed:     &sorted{less: byBackoffEnd},
		waiting:    &sorted{less: byExpiry},
		waitingFor: map[Events]map[types.UID]*entry{},
	}
}

// Set adds a pod, or replaces it with a newer version. A waiting pod with a change
// that may make it schedulable is retried.
func (q *Queue) Set(pod *corev1.Pod) {
	e := q.entries[pod.UID]
	if e == nil {
		e = &entry{pod: pod, gated: gated(pod)}
		q.entries[pod.UID] = e
		q.sequenceLast(e)
		if !e.gated {
			q.activate(e)
		}
		return
	}
	old := e.pod
	e.pod = pod
	switch {
	case gated(pod):
		q.leave(e)
		e.gated = true
	case e.gated:
		e.gated = false
		q.sequenceLast(e)
		q.activate(e)
	case e.in == q.waiting && changed(old, pod):
		q.wake(e)
	}
}

func gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// changed reports whether there is a difference that a decision can depend on.
func changed(old, pod *corev1.Pod) bool {
	return !apiequality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
		!apiequality.Semantic.DeepEqual(old.Spec, pod.Spec) ||
		!apiequality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses)
}

// Get returns the newest version of a pod, nil if the queue does not have it.
func (q *Queue) Get(uid types.UID) *corev1.Pod {
	if e := q.entries[uid]; e != nil {
		return e.pod
	}
	return nil
}

// Remove removes a pod that was deleted or bound.
func (q *Queue) Remove(uid types.UID) {
	if e := q.entries[uid]; e != nil {
		q.leave(e)
		delete(q.entries, uid)
	}
}

// Pop returns the next pod, nil if there is none. It is in flight until Wait, Retry
// or Remove.
//
// A pod is popped during its backoff if no pod is active (KEP-5142), or only pods of
// lower priority are: otherwise one of these might take the resources that an event
// has freed. This applies to every second pod only, so that unschedulable pods of
// high priority do not starve all others.
func (q *Queue) Pop() *corev1.Pod {
	q.release()
	e, backingOff := q.active.first(), q.backoff.highestPriority()
	early := backingOff != nil && (e == nil || backingOff.priority() > e.priority() && !q.early)
	if early {
		e = backingOff
	}
	if e == nil {
		return nil
	}
	q.early = early
	q.leave(e)
	return e.pod
}

// Wait makes a pod wait for one of the events, as no node fits it.
func (q *Queue) Wait(uid types.UID, events Events) {
	e := q.entries[uid]
	if e == nil || e.gated {
		return
	}
	q.leave(e)
	q.sequenceLast(e)
	e.unschedulable++
	e.failed = 0
	e.backoffEnd = q.now().Add(backoff(e.unschedulable))
	e.expires = q.now().Add(MaxWait)
	e.events = events
	q.enter(e, q.waiting)
	if q.waitingFor[events] == nil {
		q.waitingFor[events] = map[types.UID]*entry{}
	}
	q.waitingFor[events][uid] = e
}

// Retry retries a pod after a backoff that no event shortens, as something other
// than the lack of a node has failed.
func (q *Queue) Retry(uid types.UID) {
	e := q.entries[uid]
	if e == nil || e.gated {
		return
	}
	q.leave(e)
	q.sequenceLast(e)
	e.failed++
	e.backoffEnd = q.now().Add(backoff(e.failed))
	q.enter(e, q.failed)
}

// Wake retries the pods that wait for one of the events and for which helps is
// true; nil means all.
func (q *Queue) Wake(events Events, helps func(*corev1.Pod) bool) {
	for mask, entries := range q.waitingFor {
		if mask&events == 0 {
			continue
		}
		for _, e := range entries {
			if helps == nil || helps(e.pod) {
				q.wake(e)
			}
		}
	}
}

// Next returns when to call Pop again if no event comes before; false means never.
func (q *Queue) Next() (time.Time, bool) {
	var next time.Time
	found := false
	sooner := func(t time.Time) {
		if !found || t.Before(next) {
			next, found = t, true
		}
	}
	if q.active.first() != nil || q.backoff.first() != nil {
		sooner(q.now())
	}
	if e := q.failed.first(); e != nil {
		sooner(e.backoffEnd)
	}
	if e := q.waiting.first(); e != nil {
		sooner(e.expires)
	}
	return next, found
}

// release activates the pods whose backoff or wait has ended.
func (q *Queue) release() {
	now := q.now()
	for e := q.waiting.first(); e != nil && !e.expires.After(now); e = q.waiting.first() {
		q.activate(e)
	}
	for _, p := range []entries{q.failed, q.backoff} {
		for e := p.first(); e != nil && !e.backoffEnd.After(now); e = p.first() {
			q.activate(e)
		}
	}
}

func (q *Queue) wake(e *entry) {
	if e.backoffEnd.After(q.now()) {
		q.enter(e, q.backoff)
		return
	}
	q.activate(e)
}

func (q *Queue) activate(e *entry) { q.enter(e, q.active) }

// enter moves the pod to a heap.
func (q *Queue) enter(e *entry, p entries) {
	q.leave(e)
	e.in = p
	p.add(e)
}

// sequenceLast orders the pod after all others of its priority.
func (q *Queue) sequenceLast(e *entry) {
	q.sequence++
	e.sequence = q.sequence
}

// leave removes the pod from its heap.
func (q *Queue) leave(e *entry) {
	if e.in == q.waiting {
		delete(q.waitingFor[e.events], e.pod.UID)
		if len(q.waitingFor[e.events]) == 0 {
			delete(q.waitingFor, e.events)
		}
	}
	if e.in != nil {
		e.in.remove(e)
		e.in = nil
	}
}

// backoff returns the backoff after n consecutive failures.
func backoff(n int) time.Duration {
	d := InitialBackoff
	for ; n > 1 && d < MaxBackoff; n-- {
		d *= 2
	}
	return min(d, MaxBackoff)
}
