package runtime

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// expectation is the state that an inspection must find of a sandbox or container
// before an event about it is settled: events may arrive before the runtime's
// answers reflect them.
type expectation string

const (
	anything expectation = ""
	started  expectation = "started"
	ended    expectation = "ended"
	removed  expectation = "removed"
)

// met reports whether an observation meets the expectation.
func (w expectation) met(id string, observed pod.Observed) bool {
	for _, container := range observed.Containers {
		if container.ID != id {
			continue
		}
		switch w {
		case started:
			return container.State != pod.Created
		case ended:
			return container.State == pod.Exited
		default:
			return w == anything
		}
	}
	for _, sandbox := range observed.Sandboxes {
		if sandbox.ID != id {
			continue
		}
		switch w {
		case ended:
			return !sandbox.Ready
		default:
			return w != removed
		}
	}
	return w != started
}

// The back-off between inspections of a pod that did not yet find what events have
// announced: 2 ms at first, 1.5 times as long each time, about 2 s in all. What is
// not found by then is left to the next relist.
const (
	firstAgain = 2 * time.Millisecond
	againTimes = 15
)

func backoff(misses int) time.Duration {
	pause := firstAgain
	for range misses {
		pause += pause / 2
	}
	return pause
}

// The back-off between inspections of a pod about which the runtime's answers are
// invalid.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// inspectionQueue decides which pods are to be inspected, and when. It is pure.
type inspectionQueue map[types.UID]*item

// item is one pod of the queue.
type item struct {
	// due is when the pod is to be inspected; zero means at once.
	due time.Time
	// inspecting reports that an inspection is in flight; again, that something has
	// happened since it began.
	inspecting, again bool
	wants             map[string]expectation
	// listing is what a relist has returned about the pod, if nothing has happened
	// since.
	listing *listing
	// misses counts the inspections that did not meet the expectations, failures those
	// that failed.
	misses, failures int
}

// event records an event about a sandbox or a container.
func (a inspectionQueue) event(uid types.UID, id string, w expectation) {
	it := a.touch(uid)
	it.listing = nil
	if id != "" && w != anything {
		if it.wants == nil {
			it.wants = map[string]expectation{}
		}
		it.wants[id] = w
	}
}

// listed records that a relist disagrees with what is known about a pod. listing
// is nil if the relist does not have the pod.
func (a inspectionQueue) listed(uid types.UID, listing *listing) {
	if it := a[uid]; it != nil && it.failures > 0 {
		// The pod's own retry is due soon.
		return
	}
	it := a.touch(uid)
	it.listing = listing
}

func (a inspectionQueue) touch(uid types.UID) *item {
	it := a[uid]
	if it == nil {
		it = &item{}
		a[uid] = it
	}
	it.due = time.Time{}
	it.misses = 0
	it.again = it.inspecting
	return it
}

// next returns a pod to inspect now and marks it as being inspected. If there is
// none, it returns when there will be one; zero means never.
func (a inspectionQueue) next(now time.Time) (types.UID, *item, time.Time) {
	var soonest time.Time
	for uid, it := range a {
		switch {
		case it.inspecting:
		case !it.due.After(now):
			it.inspecting, it.again = true, false
			return uid, it, time.Time{}
		case soonest.IsZero() || it.due.Before(soonest):
			soonest = it.due
		}
	}
	return "", nil, soonest
}

// inspected records the result of an inspection.
func (a inspectionQueue) inspected(uid types.UID, observed pod.Observed, now time.Time) {
	it := a[uid]
	it.inspecting, it.failures, it.listing = false, 0, nil
	if it.again {
		return
	}
	for id, w := range it.wants {
		if w.met(id, observed) {
			delete(it.wants, id)
		}
	}
	if len(it.wants) == 0 || it.misses == againTimes {
		delete(a, uid)
		return
	}
	it.due = now.Add(backoff(it.misses))
	it.misses++
}

// failed records that an inspection failed. wait is false if the pod is to be
// inspected again as soon as possible.
func (a inspectionQueue) failed(uid types.UID, now time.Time, wait bool) {
	it := a[uid]
	it.inspecting, it.listing = false, nil
	if !wait {
		return
	}
	it.due = now.Add(min(firstRetry<<min(it.failures, 10), lastRetry))
	it.failures++
}
