package election

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Term is the time in which this process certainly holds the lease. It ends at the
// renew deadline, counted from when the last successful renewal was sent. This is
// before another process may acquire the lease, even if this one was suspended or
// cut off. A nil Term never ends: it is for a manager without leader election.
type Term struct {
	clock clock.PassiveClock
	// length is the renew deadline.
	length time.Duration
	// renewNow has a token when the lease is to be renewed at once.
	renewNow chan struct{}

	mu    sync.Mutex
	began time.Time // when the last successful renewal was sent
	ended bool
	// required counts the calls of RequireRenewal, and satisfied those before the
	// last successful renewal was sent.
	required, satisfied int
	// changed is closed when began, ended or satisfied changes.
	changed chan struct{}
}

func newTerm(clock clock.PassiveClock, length time.Duration, began time.Time) *Term {
	return &Term{clock: clock, length: length, began: began, renewNow: make(chan struct{}, 1), changed: make(chan struct{})}
}

// RequireRenewal makes later calls of Confirm wait until the lease has been renewed.
// It is called when the API server may be another one, or in an older state, than
// before.
func (t *Term) RequireRenewal() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.required++
	t.mu.Unlock()
	select {
	case t.renewNow <- struct{}{}:
	default:
	}
}

// Confirm returns nil if this process holds the lease now, and ErrLost if it does
// not. It waits for a renewal if one is required.
func (t *Term) Confirm(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	required := t.required
	t.mu.Unlock()
	for {
		t.mu.Lock()
		left, satisfied, changed := t.left(), t.satisfied >= required, t.changed
		t.mu.Unlock()
		switch {
		case left <= 0:
			return ErrLost
		case satisfied:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Guard passes requests to next that only read, and all others only while this
// process holds the lease.
func (t *Term) Guard(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return guard{t, next}
}

type guard struct {
	term *Term
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := g.term.Confirm(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as the interface demands
			}
			return nil, err
		}
	}
	return g.next.RoundTrip(r)
}

// WrappedRoundTripper implements net.RoundTripperWrapper, for
// net.CloseIdleConnectionsFor.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// left returns how long the term still lasts, by the monotonic clock or the wall
// clock, whichever has advanced more: the former stops while the machine is
// suspended, and the latter may be set back. The caller holds t.mu.
func (t *Term) left() time.Duration {
	if t.ended {
		return 0
	}
	now := t.clock.Now()
	return t.length - max(now.Sub(t.began), now.Round(0).Sub(t.began.Round(0)))
}

// remaining returns how long the term still lasts.
func (t *Term) remaining() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left()
}

// renewing returns the arguments of renewed for a renewal that is sent now.
func (t *Term) renewing() (sent time.Time, required int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Now(), t.required
}

// renewed records that a renewal has succeeded.
func (t *Term) renewed(sent time.Time, required int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.satisfied = sent, required
	t.notify()
}

// end ends the term for good.
func (t *Term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.notify()
}

// notify wakes the calls of Confirm that wait for a change. The caller holds t.mu.
func (t *Term) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}
