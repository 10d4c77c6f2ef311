package runtime

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// want is what a look at a pod must show of a sandbox or container before an
// event about it is done with: events may run ahead of what the runtime
// answers.
type want string

const (
	anything want = ""
	started  want = "started"
	ended    want = "ended"
	removed  want = "removed"
)

// met says whether an observation shows what is wanted.
func (w want) met(id string, observed pod.Observed) bool {
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

// How often and how soon a pod is looked at again whose look has not shown
// what events have said: after 2 ms, and then half as long again each time,
// about 2 s in all. What is not there then is left to the next check.
const (
	firstAgain = 2 * time.Millisecond
	againTimes = 15
)

func again(misses int) time.Duration {
	pause := firstAgain
	for range misses {
		pause += pause / 2
	}
	return pause
}

// How soon a pod is looked at again that the runtime tells wrongly.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// agenda says which pods are to be looked at, and when. It is pure.
type agenda map[types.UID]*item

// item is one pod of the agenda.
type item struct {
	// due is when it is to be looked at; zero at once.
	due time.Time
	// looking says that a look is under way; again, that something has
	// happened since it began.
	looking, again bool
	wants          map[string]want
	// listing is what a list of all pods has said of it, if nothing has
	// happened since.
	listing *listing
	// misses counts the looks that have not shown what is wanted, failures
	// those that have failed.
	misses, failures int
}

// event notes that something has happened to a sandbox or a container.
func (a agenda) event(uid types.UID, id string, w want) {
	it := a.touch(uid)
	it.listing = nil
	if id != "" && w != anything {
		if it.wants == nil {
			it.wants = map[string]want{}
		}
		it.wants[id] = w
	}
}

// listed notes that a list of all pods has raised a doubt about a pod; it is
// nil for one that it does not have.
func (a agenda) listed(uid types.UID, listing *listing) {
	if it := a[uid]; it != nil && it.failures > 0 {
		// Its own retry is due in time.
		return
	}
	it := a.touch(uid)
	it.listing = listing
}

func (a agenda) touch(uid types.UID) *item {
	it := a[uid]
	if it == nil {
		it = &item{}
		a[uid] = it
	}
	it.due = time.Time{}
	it.misses = 0
	it.again = it.looking
	return it
}

// next gives a pod to look at now and marks it as being looked at. Otherwise
// it tells when there will be one, zero for never.
func (a agenda) next(now time.Time) (types.UID, *item, time.Time) {
	var soonest time.Time
	for uid, it := range a {
		switch {
		case it.looking:
		case !it.due.After(now):
			it.looking, it.again = true, false
			return uid, it, time.Time{}
		case soonest.IsZero() || it.due.Before(soonest):
			soonest = it.due
		}
	}
	return "", nil, soonest
}

// looked notes what a look has shown.
func (a agenda) looked(uid types.UID, observed pod.Observed, now time.Time) {
	it := a[uid]
	it.looking, it.failures, it.listing = false, 0, nil
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
	it.due = now.Add(again(it.misses))
	it.misses++
}

// failed notes that a look has failed. wait is false if the pod is to be
// looked at as soon as possible.
func (a agenda) failed(uid types.UID, now time.Time, wait bool) {
	it := a[uid]
	it.looking, it.listing = false, nil
	if !wait {
		return
	}
	it.due = now.Add(min(firstRetry<<min(it.failures, 10), lastRetry))
	it.failures++
}
