package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"svc.dev/svc/controllers/discovery"
)

// Env is what a controller works with. Everything in it knows the kinds by
// their Go types only, so that a controller works in any group domain.
type Env struct {
	// Manager runs the controller once this process is elected. Its cache is
	// shared by all controllers: one watch per kind in the process.
	Manager manager.Manager
	// Client is the controller's own. It reads from the shared cache and waits
	// there for its own writes: a reconciler never decides on a state older than
	// what it has done itself. Objects without managed fields, as the cache
	// leaves them out: write with patches, or with updates of subresources.
	Client client.Client
	// Live reads from the API server, past the cache, and waits for nothing that
	// it has written.
	Live client.Client
	// Metadata works on the metadata of any resource that is served, as found
	// by Discovery.
	Metadata  metadata.Interface
	Discovery *discovery.Discovery
	Clock     clock.WithTicker

	// Broadcaster is where Recorder's events go.
	Broadcaster record.EventBroadcaster
	// Indexes are those of the shared cache.
	Indexes *Indexes
}

// Recorder records events of a component, such as "deployment-controller":
// what kubectl describe shows in the column From.
func (e *Env) Recorder(component string) record.EventRecorder {
	return e.Broadcaster.NewRecorder(e.Manager.GetScheme(), corev1.EventSource{Component: component})
}

// Watch is a kind whose events make requests for a reconciler.
type Watch[Request comparable] struct {
	Object     client.Object
	Handler    handler.TypedEventHandler[client.Object, Request]
	Predicates []predicate.TypedPredicate[client.Object]
	// Source, if set, makes the requests, rather than the events of Object.
	Source source.TypedSource[Request]
}

// From is a watch that hands the reconciler's queue to start before the first
// request is reconciled, for requests that no event makes.
func From[Request comparable](start func(Queue[Request])) Watch[Request] {
	return Watch[Request]{Source: source.TypedFunc[Request](func(_ context.Context, queue Queue[Request]) error {
		start(queue)
		return nil
	})}
}

// For is a watch that requests the reconciliation of the object itself.
func For(obj client.Object, predicates ...predicate.Predicate) Watch[reconcile.Request] {
	return Watch[reconcile.Request]{Object: obj, Handler: &handler.EnqueueRequestForObject{}, Predicates: predicates}
}

// Map is a watch that requests the reconciliation of what to makes of an object.
func Map(obj client.Object, to handler.MapFunc, predicates ...predicate.Predicate) Watch[reconcile.Request] {
	return Watch[reconcile.Request]{Object: obj, Handler: handler.EnqueueRequestsFromMapFunc(to), Predicates: predicates}
}

// Run adds a reconciler to the manager: workers goroutines that take requests
// from one queue, which the watches fill. A request that fails is tried again
// with exponential backoff, after a minute at most, unless it met a conflict:
// then it is tried again soon.
func Run[Request comparable](e *Env, name string, workers int, r reconcile.TypedReconciler[Request], watches ...Watch[Request]) error {
	options := ctrlcontroller.TypedOptions[Request]{
		Reconciler:              patient[Request]{r},
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](firstRetry, lastRetry),
		NewQueue:                newQueue[Request],
	}
	options.DefaultFromConfig(e.Manager.GetControllerOptions())
	options.Logger = e.Manager.GetLogger()
	c, err := ctrlcontroller.NewTypedUnmanaged(name, options)
	if err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	for _, w := range watches {
		from := w.Source
		if from == nil {
			from = source.TypedKind[client.Object, Request](oneKind{e.Manager.GetCache(), w.Object}, w.Object, w.Handler, w.Predicates...)
		}
		if err := c.Watch(from); err != nil {
			return fmt.Errorf("controller %s: watch %T: %w", name, w.Object, err)
		}
	}
	// The manager runs already: the controller starts as it is added.
	if err := e.Manager.Add(c); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	return nil
}

// oneKind is a cache of which a controller waits for a kind that it watches,
// and not for those of other controllers, which may never be readable.
type oneKind struct {
	cache.Cache
	kind client.Object
}

// WaitForCacheSync implements cache.Cache.
func (o oneKind) WaitForCacheSync(ctx context.Context) bool {
	_, err := o.GetInformer(ctx, o.kind) // returns when it has synced
	return err == nil
}

// The time before a request is tried again that failed, at first and after many
// failures. What it failed for, a quota, say, may end without an event.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
)

// patient takes conflicts for what they are: nothing to report.
type patient[Request comparable] struct {
	reconcile.TypedReconciler[Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (p patient[Request]) Reconcile(ctx context.Context, req Request) (reconcile.Result, error) {
	result, err := p.TypedReconciler.Reconcile(ctx, req)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Trying again after a conflict", "reason", err.Error())
		return reconcile.Result{Requeue: true}, nil //nolint:staticcheck // backs off, and reports no error
	}
	return result, err
}

// Index is a named way to look objects up in the cache:
// client.MatchingFields{index.Name: value}.
type Index struct {
	Name   string
	Object client.Object
	// Values are those of an object; none leaves it out.
	Values client.IndexerFunc
}

// Indexes adds indexes to a cache, each once, however many controllers use it.
type Indexes struct {
	indexer client.FieldIndexer
	added   map[string]bool
}

// NewIndexes are the indexes of a cache that has none yet.
func NewIndexes(indexer client.FieldIndexer) *Indexes {
	return &Indexes{indexer: indexer, added: map[string]bool{}}
}

// Need adds indexes that are not there yet. Controllers are set up one after
// the other; it must not be called at any other time.
func (i *Indexes) Need(ctx context.Context, indexes ...Index) error {
	for _, index := range indexes {
		key := fmt.Sprintf("%T %s", index.Object, index.Name)
		if i.added[key] {
			continue
		}
		if err := i.indexer.IndexField(ctx, index.Object, index.Name, index.Values); err != nil {
			return fmt.Errorf("index %s of %T: %w", index.Name, index.Object, err)
		}
		i.added[key] = true
	}
	return nil
}
