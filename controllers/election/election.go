// Package election chooses the one manager that works, by a Lease, and notices
// when the API server has gone back in time.
//
// The rules are those of client-go's leader election, with which it shares
// leases, but three. Work is done within a [Term], which ends by itself: not
// only when the elector gets to notice, but in every request that would change
// something. A leader that sees another's name in the lease, or its own lease
// in an older state, stops at once rather than at the renew deadline. And a
// lease is given back when the work has stopped, and only by whom it belongs to.
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
	// ErrLost tells that another manager may hold the lease.
	ErrLost = errors.New("the lease was lost")
	// ErrWentBack tells that the API server has an older state than it had: its
	// etcd was restored from a snapshot that is older than the last renewal of
	// the lease. Caches filled before are worth nothing.
	ErrWentBack = errors.New("the API server has gone back to an earlier state, as after a restore from a snapshot")
)

// Elector takes a lease, works, and gives it back.
type Elector struct {
	// Client must not read from a cache, and should time out well within the
	// renew deadline.
	Client client.Client
	Key    client.ObjectKey
	// Holder is this process in the Lease. One that was holding the lease under
	// the same name before it was killed has it again at once.
	Holder string
	// LeaseDuration is how long others wait for a leader that does not renew
	// the lease, in whole seconds; RenewDeadline is how long a term lasts
	// without a renewal, and RetryPeriod the time between two renewals, or two
	// looks at another's lease.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Events records who became the leader.
	Events record.EventRecorder
	Clock  clock.WithTicker

	mu   sync.Mutex
	term *Term // while there is work
}

// Lead waits until this process holds the lease, and calls work. It returns
// when work has: with nil if ctx is done, with ErrLost or ErrWentBack if the
// term ended before, and else with what work returned. The context of work ends
// with the term.
func (e *Elector) Lead(ctx context.Context, work func(ctx context.Context, term *Term) error) error {
	lease, term := e.acquire(ctx)
	if lease == nil {
		return nil
	}
	e.setTerm(term)
	defer e.setTerm(nil)
	logger := klog.FromContext(ctx).WithValues("lease", e.Key)
	logger.Info("Holds the lease", "holder", e.Holder)
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
		logger.Error(ended, "Stops to work", "holder", e.Holder)
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

// acquire waits for the lease. It returns nil if ctx is done before.
func (e *Elector) acquire(ctx context.Context) (*coordinationv1.Lease, *Term) {
	var seen sighting
	var told string
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
		if state != told && ctx.Err() == nil {
			told = state
			logger.Info("Waits for the lease", "reason", state)
		}
		select {
		case <-e.Clock.After(wait.Jitter(e.RetryPeriod, 0.2)):
		case <-ctx.Done():
		}
	}
	return nil, nil
}

// sighting is a state of the lease, and since when it is seen.
type sighting struct {
	resourceVersion, holder string
	since                   time.Time
}

// try takes the lease if that is allowed. It returns nil if it is not.
func (e *Elector) try(ctx context.Context, seen *sighting) (*coordinationv1.Lease, error) {
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
		*seen = sighting{lease.ResourceVersion, ptr.Deref(lease.Spec.HolderIdentity, ""), e.Clock.Now()}
	}
	if !mayTake(lease.Spec, e.Holder, e.Clock.Since(seen.since)) {
		return nil, nil
	}
	lease.Spec = held(lease.Spec, e.Holder, e.LeaseDuration, e.Clock.Now())
	if err := e.Client.Update(ctx, lease); err != nil {
		return nil, fmt.Errorf("take the lease: %w", err)
	}
	return lease, nil
}

// keep renews the lease until ctx is done or the term has ended, and tells why
// it has.
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
			klog.FromContext(ctx).Info("The lease is not renewed yet", "lease", e.Key, "reason", err.Error())
			pause = min(e.RetryPeriod, term.remaining())
		default:
			lease, pause = renewed, e.RetryPeriod
		}
	}
}

// pause waits, no longer than until there is doubt. It returns false when ctx
// is done.
func (e *Elector) pause(ctx context.Context, term *Term, pause time.Duration) bool {
	timer := e.Clock.NewTimer(max(pause, 0))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-term.doubted:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

// renew writes the lease, and reads it first if somebody else has written it.
func (e *Elector) renew(ctx context.Context, last *coordinationv1.Lease, term *Term) (*coordinationv1.Lease, error) {
	for {
		sent, doubts := term.renewing()
		lease := last.DeepCopy()
		lease.Spec = held(last.Spec, e.Holder, e.LeaseDuration, sent)
		err := e.Client.Update(ctx, lease)
		if err == nil {
			if err = notOlder(lease, last); err == nil {
				term.renewed(sent, doubts)
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

// reread reads a lease that is not as it was left. It fails with ErrLost if it
// belongs to somebody else.
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

// release gives the lease back if it still belongs to this process, so that
// nobody has to wait.
func (e *Elector) release(ctx context.Context, last *coordinationv1.Lease) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.RetryPeriod)
	defer cancel()
	for {
		lease := last.DeepCopy()
		lease.Spec = released(last.Spec, e.Clock.Now())
		err := e.Client.Update(ctx, lease)
		if apierrors.IsConflict(err) {
			// A renewal that nobody waited for may have come through.
			if last, err = e.reread(ctx, last); err == nil {
				continue
			}
		}
		if err != nil {
			logger.Info("The lease is not given back", "lease", e.Key, "reason", err.Error())
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

// Leading tells whether this process works.
func (e *Elector) Leading() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term != nil
}

// Name implements healthz.HealthChecker, with the name that
// kube-controller-manager gives this check.
func (e *Elector) Name() string { return "leaderElection" }

// checkGrace is how long after the end of its lease a process may still work
// before it counts as unhealthy.
const checkGrace = 20 * time.Second

// Check implements healthz.HealthChecker. It fails for a process that works
// although its lease has ended.
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
