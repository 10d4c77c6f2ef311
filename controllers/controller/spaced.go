package controller

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Spaced is a reconciler that rests between two reconciliations of the same
// request. The first of several events is acted on at once; what comes within
// the rest is acted on together, after it. A rollout, say, makes many events of
// one object, and each reconciliation may write a status.
func Spaced[Request comparable](r reconcile.TypedReconciler[Request], rest time.Duration, now func() time.Time) reconcile.TypedReconciler[Request] {
	return &spaced[Request]{reconciler: r, rest: rest, now: now, until: map[Request]time.Time{}}
}

type spaced[Request comparable] struct {
	reconciler reconcile.TypedReconciler[Request]
	rest       time.Duration
	now        func() time.Time

	mu sync.Mutex
	// until is when the rest of a request ends, and resting are the requests in
	// the order in which their rests end.
	until   map[Request]time.Time
	resting []Request
}

// Reconcile implements reconcile.TypedReconciler.
func (s *spaced[Request]) Reconcile(ctx context.Context, request Request) (reconcile.Result, error) {
	if left := s.left(request); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	result, err := s.reconciler.Reconcile(ctx, request)
	if err == nil { // the queue spaces failures, ever further; a rest would make it forget them
		s.begin(request)
	}
	return result, err
}

// left is how long the request still rests. It forgets those that do not.
func (s *spaced[Request]) left(request Request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for len(s.resting) > 0 && !s.until[s.resting[0]].After(now) {
		delete(s.until, s.resting[0])
		s.resting = s.resting[1:]
	}
	return s.until[request].Sub(now)
}

// begin lets the request rest from now on. It does not rest already: a request
// is reconciled once at a time.
func (s *spaced[Request]) begin(request Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until[request] = s.now().Add(s.rest)
	s.resting = append(s.resting, request)
}
