package controller

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Watch enqueues requests for a reconciler: for the events of a kind, or from a
// source.
type Watch[Request comparable] struct {
	Object     client.Object
	Handler    handler.TypedEventHandler[client.Object, Request]
	Predicates []predicate.TypedPredicate[client.Object]
	// Source, if set, takes the place of the fields above.
	Source source.TypedSource[Request]
	// BatchPeriod is how long a request waits in the queue for further events,
	// which are then handled by the same sync. 0 enqueues at once.
	BatchPeriod time.Duration
}

// For enqueues the object of an event itself.
func For(obj client.Object, predicates ...predicate.Predicate) Watch[reconcile.Request] {
	return Watch[reconcile.Request]{Object: obj, Handler: &handler.EnqueueRequestForObject{}, Predicates: predicates}
}

// Map enqueues what to returns for the object of an event; for an update, for
// both states of the object.
func Map(obj client.Object, to handler.MapFunc, predicates ...predicate.Predicate) Watch[reconcile.Request] {
	return Watch[reconcile.Request]{Object: obj, Handler: handler.EnqueueRequestsFromMapFunc(to), Predicates: predicates}
}

// Batched returns the watch with a BatchPeriod.
func (w Watch[Request]) Batched(period time.Duration) Watch[Request] {
	w.BatchPeriod = period
	return w
}

// from returns the source of the watch's requests.
func (w Watch[Request]) from(c cache.Cache) source.TypedSource[Request] {
	from := w.Source
	if from == nil {
		from = source.TypedKind[client.Object, Request](oneKind{c, w.Object}, w.Object, w.Handler, w.Predicates...)
	}
	if w.BatchPeriod <= 0 {
		return from
	}
	return batching[Request]{from, w.BatchPeriod}
}

// batching is a source whose requests are enqueued after a period.
type batching[Request comparable] struct {
	source.TypedSource[Request]
	period time.Duration
}

// Start implements source.TypedSource.
func (b batching[Request]) Start(ctx context.Context, queue Queue[Request]) error {
	return b.TypedSource.Start(ctx, delaying[Request]{queue, b.period})
}

// WaitForSync implements source.TypedSyncingSource.
func (b batching[Request]) WaitForSync(ctx context.Context) error {
	if s, ok := b.TypedSource.(source.TypedSyncingSource[Request]); ok {
		return s.WaitForSync(ctx)
	}
	return nil
}

// delaying is a queue that adds every request after a period. A request that
// waits already keeps its time.
type delaying[Request comparable] struct {
	Queue[Request]
	period time.Duration
}

// Add implements workqueue.TypedInterface.
func (d delaying[Request]) Add(request Request) { d.AddAfter(request, d.period) }

// Trigger enqueues the requests that a controller makes itself, for example of
// objects that were affected by the sync of another object. It is safe for
// concurrent use.
type Trigger[Request comparable] struct {
	mu sync.Mutex
	// queue is nil until the controller runs. early are the requests before that.
	queue Queue[Request]
	early []Request
}

// Enqueue enqueues requests. Those that are made before the controller runs are
// enqueued when it starts.
func (t *Trigger[Request]) Enqueue(requests ...Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		t.early = append(t.early, requests...)
		return
	}
	for _, request := range requests {
		t.queue.Add(request)
	}
}

// Failures returns how often a request has been requeued with backoff since it last
// succeeded.
func (t *Trigger[Request]) Failures(request Request) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		return 0
	}
	return t.queue.NumRequeues(request)
}

// Watch returns the watch that has the trigger's requests.
func (t *Trigger[Request]) Watch() Watch[Request] {
	return Watch[Request]{Source: source.TypedFunc[Request](func(_ context.Context, queue Queue[Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		for _, request := range t.early {
			queue.Add(request)
		}
		t.early = nil
		return nil
	})}
}

// oneKind is a cache of which a controller waits only for the kind that it
// watches: the kinds of other controllers may never become readable.
type oneKind struct {
	cache.Cache
	kind client.Object
}

// WaitForCacheSync implements cache.Cache.
func (o oneKind) WaitForCacheSync(ctx context.Context) bool {
	_, err := o.GetInformer(ctx, o.kind) // returns when the informer has synced
	return err == nil
}
