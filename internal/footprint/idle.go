package footprint

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	// idleSlack is how late the timers of an idle process may be.
	idleSlack = 50 * time.Millisecond
	// idleInterval is how often it is decided whether the process is idle.
	idleInterval = 3 * time.Second
	// idleRequests is how many requests an idle process gets in such a time, and idlePart how
	// much of it a processor may work for the process.
	idleRequests, idlePart = 16, 20
)

// activity counts what the process is asked for.
type activity struct {
	requests atomic.Int64 // in the present interval
	// busy gets a value when there are more than an idle process gets.
	busy chan struct{}
}

func newActivity() *activity { return &activity{busy: make(chan struct{}, 1)} }

// process is the activity of this process: the slack of timers is one of threads.
var process, tuned = newActivity(), atomic.Bool{}

// CountRequest counts a request from a client. More than a few make the process busy.
func CountRequest() { process.count() }

func (a *activity) count() {
	if a.requests.Add(1) != idleRequests+1 {
		return
	}
	select {
	case a.busy <- struct{}{}:
	default:
	}
}

// Idle lets the timers of the process be late while it is idle, until ctx is done, so that those
// that are due at about the same time wake the process once (prctl(2), PR_SET_TIMERSLACK). The
// queues of libraries have one each, which fires twice a second. In a busy process that would
// delay Go's scheduler, which finds by a timer the threads that wait for the disk. It does
// nothing where the system does not let the process change its threads, and in a process in which
// it runs already.
func Idle(ctx context.Context) {
	if !tuned.CompareAndSwap(false, true) {
		return
	}
	defer tuned.Store(false)
	if err := process.tune(ctx, processorTime, setSlack); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to set the timer slack of threads", "err", err)
	}
}

// tune calls set when the process becomes idle, with idleSlack, and when it becomes busy, with
// that of the system, again and again until that has succeeded. It returns an error if the system
// does not let it set that at the beginning.
func (a *activity) tune(ctx context.Context, used func() time.Duration, set func(time.Duration) error) error {
	usual := usualSlack()
	if err := set(usual); err != nil {
		return err
	}
	ticker := time.NewTicker(idleInterval)
	defer ticker.Stop()
	last, raised := used(), false
	for {
		idle := false
		select {
		case <-ctx.Done():
			if raised {
				return set(usual)
			}
			return nil
		case <-a.busy:
		case <-ticker.C:
			now := used()
			idle = a.requests.Swap(0) <= idleRequests && now-last < idleInterval/idlePart
			last = now
		}
		switch {
		case idle && !raised:
			// What was set before an error is set back when the process is busy.
			raised = true
			if err := set(idleSlack); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to set the timer slack of threads")
			}
		case !idle && raised:
			err := set(usual)
			if raised = err != nil; raised {
				klog.FromContext(ctx).Error(err, "Failed to set back the timer slack of threads, will retry")
			}
		}
	}
}
