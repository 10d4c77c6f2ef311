package storage

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
)

// checkValidity is how long a check that has passed is not repeated.
const checkValidity = time.Second

// health runs one check of etcd at a time, for all who ask meanwhile, and not again for
// a second after one has passed. Clients without credentials may ask for it as often as
// they like (/readyz, /healthz), and each check is an entry in etcd's log: etcd's list of
// alarms is a proposal to its members.
type health struct {
	clock   clock.PassiveClock
	check   func(context.Context) error // has a time limit of its own
	running singleflight.Group

	mu     sync.Mutex
	passed time.Time
}

// ask returns the result of a check, or the error of the context if that ends first.
func (h *health) ask(ctx context.Context) error {
	if h.isRecent() {
		return nil
	}
	// The check goes on if the first who asks for it leaves.
	result := h.running.DoChan("", func() (any, error) {
		err := h.check(context.WithoutCancel(ctx))
		if err == nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.passed = h.clock.Now()
		}
		return nil, err
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-result:
		return r.Err
	}
}

// isRecent reports whether a check has passed a moment ago.
func (h *health) isRecent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := h.clock.Since(h.passed)
	return age >= 0 && age < checkValidity // the clock may have been set back
}
