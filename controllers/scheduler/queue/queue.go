// Package queue decides which of the pods that wait for a node is next.
//
// A pod is active (its turn comes by priority, then by time), or it has no node
// for the moment: then it waits for an event that may help it, and backs off
// before it is tried again. A pod with scheduling gates waits for them to go.
// The package has no goroutine and no lock. It belongs to the one goroutine
// that decides, which tells it of an event either before a decision, which then
// counts with it, or afterwards, when the pod waits already: no event is lost
// in between.
package queue

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// The times are those of kube-scheduler.
const (
	// InitialBackoff is how long a pod backs off after its first failure. It
	// doubles with each further failure until MaxBackoff.
	InitialBackoff = time.Second
	MaxBackoff     = 10 * time.Second
	// MaxWait is how long a pod waits for an event before it is tried anyway.
	MaxWait = 5 * time.Minute
)

// Events is a set of kinds of events. The queue does not know what they are.
type Events uint32

// Queue holds pods by UID.
type Queue struct {
	now     func() time.Time
	entries map[types.UID]*entry
	turns   uint64

	// active are ordered by turn; the others by when their time is over.
	active, failed, waiting *sorted
	backoff                 resting
	// early tells that the last pod came although it should back off.
	early bool
	// listening are the waiting ones, by what they wait for.
	listening map[Events]map[types.UID]*entry
}

// entry is a pod in one of the piles, or in none: gated or taken.
type entry struct {
	pod  *corev1.Pod
	turn uint64 // in which order pods came, or failed last

	// refused and failed count decisions without a node, and failures since
	// then. Until rested, the pod backs off.
	refused, failed int
	rested          time.Time
	expires         time.Time // of the wait
	events          Events
	gated           bool

	pile  pile
	index [2]int // in the heaps of the pile
}

// New is an empty queue.
func New(now func() time.Time) *Queue {
	return &Queue{
		now:       now,
		entries:   map[types.UID]*entry{},
		active:    &sorted{less: byTurn},
		backoff:   newResting(),
		failed:    &sorted{less: byRest},
		waiting:   &sorted{less: byExpiry},
		listening: map[Events]map[types.UID]*entry{},
	}
}

// Set adds a pod, or replaces it with a newer version of itself. A waiting pod
// that has changed in a way that may help it is tried again.
func (q *Queue) Set(pod *corev1.Pod) {
	e := q.entries[pod.UID]
	if e == nil {
		e = &entry{pod: pod, gated: gated(pod)}
		q.entries[pod.UID] = e
		q.line(e)
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
		q.line(e)
		q.activate(e)
	case e.pile == q.waiting && changed(old, pod):
		q.wake(e)
	}
}

func gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// changed tells whether there is a difference that a decision may depend on.
func changed(old, pod *corev1.Pod) bool {
	return !apiequality.Semantic.DeepEqual(old.Labels, pod.Labels) ||
		!apiequality.Semantic.DeepEqual(old.Spec, pod.Spec) ||
		!apiequality.Semantic.DeepEqual(old.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses)
}

// Get is the newest version of a pod, nil if the queue does not hold it.
func (q *Queue) Get(uid types.UID) *corev1.Pod {
	if e := q.entries[uid]; e != nil {
		return e.pod
	}
	return nil
}

// Remove forgets a pod: it is gone, or it has a node.
func (q *Queue) Remove(uid types.UID) {
	if e := q.entries[uid]; e != nil {
		q.leave(e)
		delete(q.entries, uid)
	}
}

// Pop takes the pod whose turn it is, nil if there is none. It stays in the
// queue as taken until Wait, Retry or Remove.
//
// A pod that backs off may come early if no other is there (KEP-5142), or none
// as important: or else it might lose the room that an event has made to a lesser
// one. But only every second pod does so, lest important pods for which there
// never is a node keep all others from theirs.
func (q *Queue) Pop() *corev1.Pod {
	q.release()
	e, rests := q.active.first(), q.backoff.important()
	early := rests != nil && (e == nil || rests.priority() > e.priority() && !q.early)
	if early {
		e = rests
	}
	if e == nil {
		return nil
	}
	q.early = early
	q.leave(e)
	return e.pod
}

// Wait says that there is no node for a pod until one of the events happens.
func (q *Queue) Wait(uid types.UID, events Events) {
	e := q.entries[uid]
	if e == nil || e.gated {
		return
	}
	q.leave(e)
	q.line(e)
	e.refused++
	e.failed = 0
	e.rested = q.now().Add(backoff(e.refused))
	e.expires = q.now().Add(MaxWait)
	e.events = events
	q.enter(e, q.waiting)
	if q.listening[events] == nil {
		q.listening[events] = map[types.UID]*entry{}
	}
	q.listening[events][uid] = e
}

// Retry says that something else than the want of a node has failed: the pod
// is tried again after a backoff, which nothing cuts short.
func (q *Queue) Retry(uid types.UID) {
	e := q.entries[uid]
	if e == nil || e.gated {
		return
	}
	q.leave(e)
	q.line(e)
	e.failed++
	e.rested = q.now().Add(backoff(e.failed))
	q.enter(e, q.failed)
}

// Wake tells that events have happened. The pods that wait for one of them are
// tried again, those only for which helps is true; nil means all.
func (q *Queue) Wake(events Events, helps func(*corev1.Pod) bool) {
	for mask, entries := range q.listening {
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

// Next is when the queue should be looked at again, if nothing happens before
// then: false means never.
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
		sooner(e.rested)
	}
	if e := q.waiting.first(); e != nil {
		sooner(e.expires)
	}
	return next, found
}

// release activates the pods whose time is over.
func (q *Queue) release() {
	now := q.now()
	for e := q.waiting.first(); e != nil && !e.expires.After(now); e = q.waiting.first() {
		q.activate(e)
	}
	for _, p := range []pile{q.failed, q.backoff} {
		for e := p.first(); e != nil && !e.rested.After(now); e = p.first() {
			q.activate(e)
		}
	}
}

func (q *Queue) wake(e *entry) {
	if e.rested.After(q.now()) {
		q.enter(e, q.backoff)
		return
	}
	q.activate(e)
}

func (q *Queue) activate(e *entry) { q.enter(e, q.active) }

// enter moves the pod into a pile.
func (q *Queue) enter(e *entry, p pile) {
	q.leave(e)
	e.pile = p
	p.add(e)
}

// line puts the pod behind all others of its priority.
func (q *Queue) line(e *entry) {
	q.turns++
	e.turn = q.turns
}

// leave takes the pod out of its pile.
func (q *Queue) leave(e *entry) {
	if e.pile == q.waiting {
		delete(q.listening[e.events], e.pod.UID)
		if len(q.listening[e.events]) == 0 {
			delete(q.listening, e.events)
		}
	}
	if e.pile != nil {
		e.pile.remove(e)
		e.pile = nil
	}
}

// backoff is how long a pod backs off after n failures in a row.
func backoff(n int) time.Duration {
	d := InitialBackoff
	for ; n > 1 && d < MaxBackoff; n-- {
		d *= 2
	}
	return min(d, MaxBackoff)
}
