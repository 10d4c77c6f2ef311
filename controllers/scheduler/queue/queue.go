// Package queue owns the order in which pending pods are scheduled.
//
// A pod is active (ordered by priority, then by time), or unschedulable: then it
// waits for an event that may make it schedulable, and backs off before it is
// retried. A pod with scheduling gates waits until they are removed.
// So does a pod of a group that is not complete, if Queue.Holds says so.
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

// Name is the name of a queue in the metrics of kube-scheduler.
type Name string

// The queues. A pod is in Backoff until its backoff ends, in Unschedulable while it
// waits for an event, and in Gated while it has scheduling gates, or Queue.Holds holds it.
const (
	Active        Name = "active"
	Backoff       Name = "backoff"
	Unschedulable Name = "unschedulable"
	Gated         Name = "gated"
)

// Cause is why a pod enters a queue: one of these, or Events.
type Cause struct {
	Name string
	// Events are those that retry the pod, if Name is empty.
	Events Events
}

// The causes have the names that kube-scheduler's metrics give them.
var (
	PodAdd                 = Cause{Name: "PodAdd"}
	PodUpdate              = Cause{Name: "PodUpdate"}
	ScheduleAttemptFailure = Cause{Name: "ScheduleAttemptFailure"}
	BackoffComplete        = Cause{Name: "BackoffComplete"}
	UnschedulableTimeout   = Cause{Name: "UnschedulableTimeout"}
	PodGroupUpdate         = Cause{Name: "PodGroupUpdate"}
)

// Queue holds pods by UID.
type Queue struct {
	// InitialBackoff and MaxBackoff are the defaults above, unless they are set before
	// the first pod.
	InitialBackoff, MaxBackoff time.Duration
	// Entered, if not nil, is called for each pod that enters a queue.
	Entered func(Name, Cause)
	// Holds, if not nil, reports whether a pod is not to be scheduled yet, besides those with
	// scheduling gates. Sync tells the queue of a change.
	Holds func(*corev1.Pod) bool

	now      func() time.Time
	entries  map[types.UID]*entry
	sequence uint64
	gated    int // the number of entries that are gated

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
	// attempts counts how often the pod was popped, and firstAttempt is the first time.
	attempts     int
	firstAttempt time.Time
	backoffEnd   time.Time
	expires      time.Time // the end of the wait for events
	events       Events
	gated        bool

	in    entries
	index [2]int // in the heaps of in
}

// New returns an empty queue.
func New(now func() time.Time) *Queue {
	return &Queue{
		InitialBackoff: InitialBackoff, MaxBackoff: MaxBackoff,
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
		e = &entry{pod: pod}
		q.entries[pod.UID] = e
		q.sequenceLast(e)
		if q.isGated(pod) {
			q.gate(e, PodAdd)
		} else {
			q.activate(e, PodAdd)
		}
		return
	}
	old := e.pod
	e.pod = pod
	switch {
	case q.isGated(pod):
		q.gate(e, PodUpdate)
	case e.gated:
		q.ungate(e, PodUpdate)
	case e.in == q.waiting && changed(old, pod):
		q.wake(e, PodUpdate)
	}
}

// Sync gates a pod that Holds holds now, or activates one that it does not hold any more.
func (q *Queue) Sync(uid types.UID) {
	e := q.entries[uid]
	switch {
	case e == nil:
	case q.isGated(e.pod):
		q.gate(e, PodGroupUpdate)
	case e.gated:
		q.ungate(e, PodGroupUpdate)
	}
}

// gate removes the pod from its heap until its gates are removed.
func (q *Queue) gate(e *entry, cause Cause) {
	q.leave(e)
	if !e.gated {
		e.gated = true
		q.gated++
		q.entered(Gated, cause)
	}
}

func (q *Queue) ungate(e *entry, cause Cause) {
	e.gated = false
	q.gated--
	q.sequenceLast(e)
	q.activate(e, cause)
}

func (q *Queue) isGated(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) > 0 || q.Holds != nil && q.Holds(pod)
}

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

// Has reports whether a pod is in one of the queues, and neither gated nor in flight.
func (q *Queue) Has(uid types.UID) bool {
	e := q.entries[uid]
	return e != nil && e.in != nil
}

// Remove removes a pod that was deleted or bound.
func (q *Queue) Remove(uid types.UID) {
	if e := q.entries[uid]; e != nil {
		q.leave(e)
		delete(q.entries, uid)
		if e.gated {
			q.gated--
		}
	}
}

// Attempts returns how often a pod was popped, and when first.
func (q *Queue) Attempts(uid types.UID) (n int, first time.Time) {
	if e := q.entries[uid]; e != nil {
		return e.attempts, e.firstAttempt
	}
	return 0, time.Time{}
}

// Pending returns the number of pods in a queue. Pods in flight are in none.
func (q *Queue) Pending(name Name) int {
	switch name {
	case Active:
		return q.active.Len()
	case Backoff:
		return q.failed.Len() + q.backoff.byEnd.Len()
	case Unschedulable:
		return q.waiting.Len()
	case Gated:
		return q.gated
	}
	return 0
}

// Pop returns the next pod, nil if there is none. It is in flight until Wait, Retry, EndWait
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
	return q.pop(e)
}

// Take pops a pod that is to be scheduled together with the last one, whether it is active,
// backs off or waits. It returns nil for a pod that is gated, in flight or not in the queue.
func (q *Queue) Take(uid types.UID) *corev1.Pod {
	e := q.entries[uid]
	if e == nil || e.in == nil {
		return nil
	}
	return q.pop(e)
}

func (q *Queue) pop(e *entry) *corev1.Pod {
	q.leave(e)
	if e.attempts++; e.attempts == 1 {
		e.firstAttempt = q.now()
	}
	return e.pod
}

// Wait makes a pod wait for one of the events, but no longer than within or MaxWait.
func (q *Queue) Wait(uid types.UID, events Events, within time.Duration) {
	e := q.entries[uid]
	if e == nil || e.gated {
		return
	}
	e.unschedulable++
	e.failed = 0
	q.wait(e, events, within, q.after(e.unschedulable))
}

// Await is Wait for a pod for which something is being done, of which the events tell: it
// has no backoff, and one that follows is longer than the last.
func (q *Queue) Await(uid types.UID, events Events, within time.Duration) {
	if e := q.entries[uid]; e != nil && !e.gated {
		q.wait(e, events, within, 0)
	}
}

func (q *Queue) wait(e *entry, events Events, within, backoff time.Duration) {
	q.leave(e)
	q.sequenceLast(e)
	e.backoffEnd = q.now().Add(backoff)
	e.expires = q.now().Add(min(within, MaxWait))
	e.events = events
	q.enter(e, q.waiting, ScheduleAttemptFailure)
	if q.waitingFor[events] == nil {
		q.waitingFor[events] = map[types.UID]*entry{}
	}
	q.waitingFor[events][e.pod.UID] = e
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
	e.backoffEnd = q.now().Add(q.after(e.failed))
	q.enter(e, q.failed, ScheduleAttemptFailure)
}

// EndWait retries a pod after the backoff of its last failure, which no event shortens any more.
// It counts no other failure.
func (q *Queue) EndWait(uid types.UID) {
	e := q.entries[uid]
	if e == nil || e.gated || e.in == q.active || e.in == q.failed {
		return
	}
	q.sequenceLast(e)
	q.enter(e, q.failed, ScheduleAttemptFailure)
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
				q.wake(e, Cause{Events: mask & events})
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
		q.activate(e, UnschedulableTimeout)
	}
	for _, p := range []entries{q.failed, q.backoff} {
		for e := p.first(); e != nil && !e.backoffEnd.After(now); e = p.first() {
			q.activate(e, BackoffComplete)
		}
	}
}

func (q *Queue) wake(e *entry, cause Cause) {
	if e.backoffEnd.After(q.now()) {
		q.enter(e, q.backoff, cause)
		return
	}
	q.activate(e, cause)
}

func (q *Queue) activate(e *entry, cause Cause) { q.enter(e, q.active, cause) }

// enter moves the pod to a heap.
func (q *Queue) enter(e *entry, p entries, cause Cause) {
	q.leave(e)
	e.in = p
	p.add(e)
	switch p {
	case q.active:
		q.entered(Active, cause)
	case q.waiting:
		q.entered(Unschedulable, cause)
	default:
		q.entered(Backoff, cause)
	}
}

func (q *Queue) entered(name Name, cause Cause) {
	if q.Entered != nil {
		q.Entered(name, cause)
	}
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

// after returns the backoff after n consecutive failures.
func (q *Queue) after(n int) time.Duration {
	d := q.InitialBackoff
	for ; n > 1 && d < q.MaxBackoff; n-- {
		d *= 2
	}
	return min(d, q.MaxBackoff)
}
