package controller

import (
	"cmp"
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
	// MinBackoff and MaxBackoff are the bounds of the backoff of a request that
	// fails. If they are 0, they are 5 ms and one minute.
	MinBackoff, MaxBackoff time.Duration
	// NamespacesInTurn makes the queue serve namespaces in turn (round robin), so
	// that a namespace with many requests does not delay the others. The requests
	// must be Namespaced.
	NamespacesInTurn bool
}

// Run adds a reconciler to the manager, with one queue, which the watches fill.
// A request that fails is retried with exponential backoff. A conflict is not
// reported as an error.
func Run[Request comparable](e *Env, o Options, r reconcile.TypedReconciler[Request], watches ...Watch[Request]) error {
	if o.MinInterval > 0 {
		r = newSpaced(r, o.MinInterval, e.Clock)
	}
	order, err := orderOf[Request](o)
	if err != nil {
		return fmt.Errorf("controller %s: %w", o.Name, err)
	}
	options := ctrlcontroller.TypedOptions[Request]{
		Reconciler:              conflictRetrier[Request]{r},
		MaxConcurrentReconciles: o.Workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](cmp.Or(o.MinBackoff, minBackoff), cmp.Or(o.MaxBackoff, maxBackoff)),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[Request]) Queue[Request] {
			return newQueue(e.Clock, name, limiter, order)
		},
	}
	options.DefaultFromConfig(e.Manager.GetControllerOptions())
	options.LogConstructor = loggers[Request](e.Manager.GetLogger(), o.Name)
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

// lifecycle is the verbosity of what the library logs of each controller and each of its watches
// as they start and stop.
const lifecycle = 4

// loggers returns the function that makes the logger of a request or, for nil, that of the
// controller itself.
func loggers[Request comparable](log klog.Logger, name string) func(*Request) klog.Logger {
	log = log.WithValues("controller", name)
	return func(request *Request) klog.Logger {
		if request == nil {
			return log.V(lifecycle)
		}
		if r, ok := any(*request).(reconcile.Request); ok {
			return log.WithValues("object", klog.KRef(r.Namespace, r.Name))
		}
		return log
	}
}

// The default bounds of the backoff. The upper one is short, because the
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
	switch {
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Retrying after a conflict", "reason", err.Error())
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // has a backoff and reports no error
	case err != nil:
		return reconcile.Result{}, err // the library warns of a result that it ignores
	}
	return result, nil
}
