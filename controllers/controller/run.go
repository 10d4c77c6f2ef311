package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options are those of a reconciler that Run adds to the manager.
type Options struct {
	// Name is the reconciler's name in logs and metrics.
	Name string
	// Workers is how many requests are synced at the same time.
	Workers int
	// MinInterval is the minimum time between two successful syncs of the same
	// request: events within it are handled by one sync, at its end. 0 is none.
	// Watch.BatchPeriod, in contrast, delays the first event too.
	MinInterval time.Duration
}

// Run adds a reconciler to the manager, with one queue, which the watches fill.
// A request that fails is retried with exponential backoff, from 5 ms up to one
// minute. A conflict is not reported as an error.
func Run[Request comparable](e *Env, o Options, r reconcile.TypedReconciler[Request], watches ...Watch[Request]) error {
	if o.MinInterval > 0 {
		r = newSpaced(r, o.MinInterval, e.Clock)
	}
	options := ctrlcontroller.TypedOptions[Request]{
		Reconciler:              conflictRetrier[Request]{r},
		MaxConcurrentReconciles: o.Workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](minBackoff, maxBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[Request]) Queue[Request] {
			return newQueue(e.Clock, name, limiter)
		},
	}
	options.DefaultFromConfig(e.Manager.GetControllerOptions())
	options.Logger = e.Manager.GetLogger()
	c, err := ctrlcontroller.NewTypedUnmanaged(o.Name, options)
	if err != nil {
		return fmt.Errorf("controller %s: %w", o.Name, err)
	}
	for _, w := range watches {
		if err := c.Watch(w.from(e.Manager.GetCache())); err != nil {
			return fmt.Errorf("controller %s: watch %T: %w", o.Name, w.Object, err)
		}
	}
	// The manager runs already, so the controller starts as it is added.
	if err := e.Manager.Add(c); err != nil {
		return fmt.Errorf("controller %s: %w", o.Name, err)
	}
	return nil
}

// The bounds of the backoff of a request. The upper one is short, because the
// cause of a failure, such as an exceeded quota, may end without an event.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Minute
)

// conflictRetrier requeues a request that met a conflict, with backoff, and
// reports no error: the cache will have the newer state soon.
type conflictRetrier[Request comparable] struct {
	reconcile.TypedReconciler[Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (c conflictRetrier[Request]) Reconcile(ctx context.Context, request Request) (reconcile.Result, error) {
	result, err := c.TypedReconciler.Reconcile(ctx, request)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Retrying after a conflict", "reason", err.Error())
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // has a backoff and reports no error
	}
	return result, err
}
