package election

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Term is the time in which this process holds the lease for certain. It ends
// at the renew deadline after the last renewal was sent, unless the next one
// succeeds: before anybody else may take the lease, however long this process
// was stopped or cut off. A nil Term does not end: there is no election.
type Term struct {
	clock clock.PassiveClock
	// length is the renew deadline.
	length time.Duration
	// doubted has a token when the lease is to be renewed at once.
	doubted chan struct{}

	mu    sync.Mutex
	began time.Time // when the last successful renewal was sent
	ended bool
	// doubts counts the reasons to look at the lease, and settled those of them
	// that came before a successful renewal was sent.
	doubts, settled int
	// changed is closed when began, ended or settled changes.
	changed chan struct{}
}

func newTerm(clock clock.PassiveClock, length time.Duration, began time.Time) *Term {
	return &Term{clock: clock, length: length, began: began, doubted: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Doubt makes the next Confirm wait until the lease has been renewed: the API
// server may not be the one, or in the state, that it was.
func (t *Term) Doubt() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.doubts++
	t.mu.Unlock()
	select {
	case t.doubted <- struct{}{}:
	default:
	}
}

// Confirm returns nil if this process holds the lease now, and ErrLost if it
// does not. It waits until there is no doubt.
func (t *Term) Confirm(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	doubts := t.doubts
	t.mu.Unlock()
	for {
		t.mu.Lock()
		left, settled, changed := t.left(), t.settled >= doubts, t.changed
		t.mu.Unlock()
		switch {
		case left <= 0:
			return ErrLost
		case settled:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Guard lets only those requests pass to next that change nothing, or that are
// sent while this process holds the lease.
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

// WrappedRoundTripper lets net.CloseIdleConnectionsFor find what is wrapped.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.next }

// left is the rest of the term. The clock that the machine does not stop in its
// sleep counts as well as the one that nobody turns. It needs t.mu.
func (t *Term) left() time.Duration {
	if t.ended {
		return 0
	}
	now := t.clock.Now()
	return t.length - max(now.Sub(t.began), now.Round(0).Sub(t.began.Round(0)))
}

// remaining is the rest of the term.
func (t *Term) remaining() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.left()
}

// renewing returns what renewed wants to know of a renewal that is sent now.
func (t *Term) renewing() (sent time.Time, doubts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Now(), t.doubts
}

// renewed notes that a renewal has succeeded.
func (t *Term) renewed(sent time.Time, doubts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began, t.settled = sent, doubts
	t.tell()
}

// end ends the term for good.
func (t *Term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.tell()
}

// tell wakes those who wait for a change. It needs t.mu.
func (t *Term) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}
