// Package election elects the leader of several managers with a Lease, fences the
// writes of a manager that is no longer the leader, and detects an API server that
// was restored from an older snapshot.
//
// Its leases are compatible with client-go's leader election, and so are its
// rules, with three differences. A leader works within a [Term], which every
// writing request checks, so that a leader that was suspended cannot write after
// its lease has expired. A leader that finds another holder in the lease, or its
// own lease in an older state, stops at once instead of at the renew deadline. The
// lease is released after the work has stopped, and only by its holder.
package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	// ErrLost means that another manager may hold the lease.
	ErrLost = errors.New("the lease was lost")
	// ErrWentBack means that the API server has an older state than before: its
	// etcd was restored from a snapshot that is older than the last renewal of
	// the lease. Caches that were filled before are invalid.
	ErrWentBack = errors.New("the API server has gone back to an earlier state, as after a restore from a snapshot")
)

// Elector acquires a lease, calls the work, and releases the lease.
type Elector struct {
	// Client must not read from a cache, and should time out well within the
	// renew deadline.
	Client client.Client
	Key    client.ObjectKey
	// Holder is the holder identity of this process. A process that restarts with
	// the same identity has its lease again at once.
	Holder string
	// LeaseDuration is how long other managers wait for a leader that does not
	// renew the lease, in whole seconds. RenewDeadline is how long a term lasts
	// without a renewal. RetryPeriod is the time between two attempts to renew or
	// to acquire the lease.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Events records who became the leader.
	Events record.EventRecorder
	Clock  clock.WithTicker

	mu   sync.Mutex
	term *Term // nil while this process is not the leader
}

// Lead waits until this process holds the lease, and calls work, whose context
// ends with the term. It returns after work has returned: nil if ctx is done,
// ErrLost or ErrWentBack if the term ended before, and otherwise the error of
// work.
func (e *Elector) Lead(ctx context.Context, work func(ctx context.Context, term *Term) error) error {
	e.setTerm(nil)
	lease, term := e.acquire(ctx)
	if lease == nil {
		return nil
	}
	e.setTerm(term)
	defer e.setTerm(nil)
	logger := klog.FromContext(ctx).WithValues("lease", e.Key)
	logger.Info("Acquired lease", "holder", e.Holder)
	e.Events.Eventf(lease, corev1.EventTypeNormal, "LeaderElection", "%s became leader", e.Holder)

	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	var result error
	running.Go(func() {
		defer stop(nil)
		result = work(working, term)
	})
	lease, ended := e.keep(working, lease, term)
	if ended != nil {
		term.end()
		stop(ended)
		logger.Error(ended, "Stopping controllers", "holder", e.Holder)
	}
	running.Wait()
	if ended == nil && term.remaining() > 0 {
		e.release(ctx, lease)
	}
	term.end()
	switch {
	case ctx.Err() != nil:
		return nil
	case ended != nil:
		return ended
	}
	return result
}

// acquire waits until this process holds the lease. It returns nil if ctx is done
// before.
func (e *Elector) acquire(ctx context.Context) (*coordinationv1.Lease, *Term) {
	var seen observation
	var logged string
	logger := klog.FromContext(ctx).WithValues("lease", e.Key)
	for ctx.Err() == nil {
		sent := e.Clock.Now()
		lease, err := e.try(ctx, &seen)
		if lease != nil {
			return lease, newTerm(e.Clock, e.RenewDeadline, sent)
		}
		state := "held by " + seen.holder
		if err != nil {
			state = err.Error()
		}
		if state != logged && ctx.Err() == nil {
			logged = state
			logger.Info("Waiting for lease", "reason", state)
		}
		select {
		case <-e.Clock.After(wait.Jitter(e.RetryPeriod, 0.2)):
		case <-ctx.Done():
		}
	}
	return nil, nil
}

// observation is a state of the lease, and when it was first observed.
type observation struct {
	resourceVersion, holder string
	since                   time.Time
}

// try acquires the lease if it is free or expired, and otherwise returns nil.
func (e *Elector) try(ctx context.Context, seen *observation) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := e.Client.Get(ctx, e.Key, lease)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Key.Namespace, Name: e.Key.Name}}
		lease.Spec = held(lease.Spec, e.Holder, e.LeaseDuration, e.Clock.Now())
		if err := e.Client.Create(ctx, lease); err != nil {
			return nil, fmt.Errorf("create the lease: %w", err)
		}
		return lease, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	if lease.ResourceVersion != seen.resourceVersion {
		*seen = observation{lease.ResourceVersion, ptr.Deref(lease.Spec.HolderIdentity, ""), e.Clock.Now()}
	}
	if !mayTake(lease.Spec, e.Holder, e.Clock.Since(seen.since)) {
		return nil, nil
	}
	lease.Spec = held(lease.Spec, e.Holder, e.LeaseDuration, e.Clock.Now())
	if err := e.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("acquire the lease: %w", err)
	}
	return lease, nil
}

// keep renews the lease until ctx is done or the term has ended. The error says
// why the term has ended.
func (e *Elector) keep(ctx context.Context, lease *coordinationv1.Lease, term *Term) (*coordinationv1.Lease, error) {
	pause := e.RetryPeriod
	for {
		if !e.pause(ctx, term, pause) {
			return lease, nil
		}
		left := term.remaining()
		if left <= 0 {
			return lease, fmt.Errorf("%w: it could not be renewed for %s", ErrLost, e.RenewDeadline)
		}
		attempt, cancel := context.WithTimeout(ctx, left)
		renewed, err := e.renew(attempt, lease, term)
		cancel()
		switch {
		case errors.Is(err, ErrLost), errors.Is(err, ErrWentBack):
			return lease, err
		case ctx.Err() != nil:
			return lease, nil
		case err != nil:
			klog.FromContext(ctx).Info("Failed to renew lease, will retry", "lease", e.Key, "reason", err.Error())
			pause = min(e.RetryPeriod, term.remaining())
		default:
			lease, pause = renewed, e.RetryPeriod
		}
	}
}

// pause waits until the time of the next renewal, or until the term requires one.
// It reports whether it waited to the end: false when ctx is done.
func (e *Elector) pause(ctx context.Context, term *Term, pause time.Duration) bool {
	timer := e.Clock.NewTimer(max(pause, 0))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-term.renewNow:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

// renew renews the lease. After a conflict it reads the lease again and retries.
func (e *Elector) renew(ctx context.Context, last *coordinationv1.Lease, term *Term) (*coordinationv1.Lease, error) {
	for {
		sent, required := term.renewing()
		lease := last.DeepCopy()
		lease.Spec = held(last.Spec, e.Holder, e.LeaseDuration, sent)
		err := e.Client.Update(ctx, lease)
		if err == nil {
			if err = notOlder(lease, last); err == nil {
				term.renewed(sent, required)
			}
			return lease, err
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if last, err = e.reread(ctx, last); err != nil {
			return nil, err
		}
	}
}

// reread reads the lease after a conflict. It fails with ErrLost if another process
// holds it.
func (e *Elector) reread(ctx context.Context, last *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := e.Client.Get(ctx, e.Key, lease)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: it was deleted", ErrLost)
	}
	if err != nil {
		return nil, err
	}
	if err := notOlder(lease, last); err != nil {
		return nil, err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != e.Holder {
		return nil, fmt.Errorf("%w: it is held by %q", ErrLost, holder)
	}
	return lease, nil
}

// notOlder fails with ErrWentBack if the lease is older than it was.
func notOlder(lease, last *coordinationv1.Lease) error {
	order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, last.ResourceVersion)
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	if order < 0 {
		return ErrWentBack
	}
	return nil
}

// release releases the lease if this process still holds it, so that the next
// leader need not wait for it to expire.
func (e *Elector) release(ctx context.Context, last *coordinationv1.Lease) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.RetryPeriod)
	defer cancel()
	for {
		lease := last.DeepCopy()
		lease.Spec = released(last.Spec, e.Clock.Now())
		err := e.Client.Update(ctx, lease)
		if apierrors.IsConflict(err) {
			// A renewal that was cancelled may have succeeded.
			if last, err = e.reread(ctx, last); err == nil {
				continue
			}
		}
		if err != nil {
			logger.Info("Failed to release lease", "lease", e.Key, "reason", err.Error())
		}
		return
	}
}

func (e *Elector) setTerm(term *Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = term
	status := 0.0
	if term != nil {
		status = 1
	}
	masterStatus().WithLabelValues(e.Key.Name).Set(status)
}

// Leading reports whether this process is the leader.
func (e *Elector) Leading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term != nil
}

// Name implements healthz.HealthChecker, with the name that
// kube-controller-manager gives this check.
func (e *Elector) Name() string { return "leaderElection" }

// checkGrace is how long after its lease has expired a leader may still work before
// it is unhealthy.
const checkGrace = 20 * time.Second

// Check implements healthz.HealthChecker. It fails if this process still works
// although its lease has expired.
func (e *Elector) Check(*http.Request) error {
	e.mu.Lock()
	term := e.term
	e.mu.Unlock()
	if term == nil {
		return nil
	}
	term.mu.Lock()
	defer term.mu.Unlock()
	if age := term.clock.Since(term.began); age > e.LeaseDuration+checkGrace {
		return fmt.Errorf("the lease %s was renewed %s ago, and the work has not stopped", e.Key, age.Round(time.Second))
	}
	return nil
}
