package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// spaced is a reconciler that leaves a minimum interval between two syncs of a
// request. A request within the interval after a sync is requeued at its end,
// so that all events within the interval are handled by one sync.
type spaced[Request comparable] struct {
	reconcile.TypedReconciler[Request]
	interval time.Duration
	clock    clock.PassiveClock

	mu sync.Mutex
	// until is the end of each request's interval, and order are the requests
	// sorted by it.
	until map[Request]time.Time
	order []Request
}

func newSpaced[Request comparable](r reconcile.TypedReconciler[Request], interval time.Duration, c clock.PassiveClock) *spaced[Request] {
	return &spaced[Request]{TypedReconciler: r, interval: interval, clock: c, until: map[Request]time.Time{}}
}

// Reconcile implements reconcile.TypedReconciler.
func (s *spaced[Request]) Reconcile(ctx context.Context, request Request) (reconcile.Result, error) {
	if left := s.left(request); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	result, err := s.TypedReconciler.Reconcile(ctx, request)
	// A failed request has a backoff, which RequeueAfter would reset.
	if err == nil {
		s.begin(request)
	}
	return result, err
}

// left returns how long the request's interval still lasts, and forgets all
// intervals that are over.
func (s *spaced[Request]) left(request Request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for len(s.order) > 0 && !s.until[s.order[0]].After(now) {
		delete(s.until, s.order[0])
		s.order = s.order[1:]
	}
	return s.until[request].Sub(now)
}

// begin begins the request's interval. The request has none yet, because the
// queue never hands it to two workers.
func (s *spaced[Request]) begin(request Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[request] = s.clock.Now().Add(s.interval)
	s.order = append(s.order, request)
}
