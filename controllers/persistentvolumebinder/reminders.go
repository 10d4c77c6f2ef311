package persistentvolumebinder

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/controllers/persistentvolumebinder/binding"
)

// remindAfter is the time after which the event that says what a claim waits for is recorded
// again: events expire, by default after an hour.
const remindAfter = 30 * time.Minute

// reminders are the events that say what claims wait for, and when they were recorded. The
// syncs of a claim that waits are many, for example one for each volume of its class.
type reminders struct {
	mu   sync.Mutex
	last map[types.NamespacedName]reminder
}

type reminder struct {
	event binding.Event
	at    time.Time
}

// due reports whether the event about a claim is recorded now: because it is another one than
// the last, or was recorded long ago.
func (r *reminders) due(claim types.NamespacedName, e binding.Event, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[claim]; last.event == e && now.Sub(last.at) < remindAfter {
		return false
	}
	if r.last == nil {
		r.last = map[types.NamespacedName]reminder{}
	}
	r.last[claim] = reminder{e, now}
	return true
}

// forget forgets a claim that waits no longer.
func (r *reminders) forget(claim types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, claim)
}
