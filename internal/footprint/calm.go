package footprint

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	// calmSlack is how late the timers of a calm process may be.
	calmSlack = 50 * time.Millisecond
	// calmInterval is the time between two looks at what the process does.
	calmInterval = 3 * time.Second
	// calmRequests is how many requests a calm process gets in such a time, and calmPart how
	// much of it a processor may work for the process.
	calmRequests, calmPart = 16, 20
)

// activity counts what the process is asked for.
type activity struct {
	requests atomic.Int64 // since the last look
	// busy gets a value when there are more than a calm process gets.
	busy chan struct{}
}

func newActivity() *activity { return &activity{busy: make(chan struct{}, 1)} }

// process is the activity of this process: the slack of timers is one of threads.
var process, calming = newActivity(), atomic.Bool{}

// CountRequest counts a request from a client. More than a few make the process busy.
func CountRequest() { process.count() }

func (a *activity) count() {
	if a.requests.Add(1) != calmRequests+1 {
		return
	}
	select {
	case a.busy <- struct{}{}:
	default:
	}
}

// Calm lets the timers of the process be late while it is idle, until ctx is done, so that those
// that are due at about the same time wake the process once (prctl(2), PR_SET_TIMERSLACK). The
// queues of libraries have one each, which fires twice a second. In a busy process that would
// delay Go's scheduler, which looks by a timer for threads that wait for the disk. It does
// nothing where the system does not let the process change its threads, and in a process of
// which it calms another server already.
func Calm(ctx context.Context) {
	if !calming.CompareAndSwap(false, true) {
		return
	}
	defer calming.Store(false)
	if err := process.calm(ctx, processorTime, setSlack); err != nil {
		klog.FromContext(ctx).V(2).Info("Timers of the idle process are not joined", "err", err)
	}
}

// calm calls set when the process becomes idle, with calmSlack, and when it becomes busy, with
// that of the system. It returns set's first error.
func (a *activity) calm(ctx context.Context, used func() time.Duration, set func(time.Duration) error) error {
	ticker := time.NewTicker(calmInterval)
	defer ticker.Stop()
	usual, last, calm := usualSlack(), used(), false
	for {
		idle := false
		select {
		case <-ctx.Done():
			if calm {
				return set(usual)
			}
			return nil
		case <-a.busy:
		case <-ticker.C:
			now := used()
			idle = a.requests.Swap(0) <= calmRequests && now-last < calmInterval/calmPart
			last = now
		}
		if idle == calm {
			continue
		}
		slack := usual
		if calm = idle; calm {
			slack = calmSlack
		}
		if err := set(slack); err != nil {
			return err
		}
	}
}
