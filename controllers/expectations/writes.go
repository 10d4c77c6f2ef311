package expectations

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Writes are the objects of one kind that syncs have created, changed or
// deleted and that later syncs of the same request expect to see in the cache.
// Its zero value is ready to use.
//
// The controller's client can wait in every List until the cache has all that
// the controller has written so far. With several workers that includes the
// writes of the other workers. A controller that often lists a kind that it
// often writes is faster if it waits with Await for the writes of its own
// request, and then lists with client.DisableReadYourWritesConsistency.
type Writes struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]sets.Set[client.ObjectKey]
}

// Expect records that a sync of the request has created, changed or deleted obj.
func (w *Writes) Expect(request types.NamespacedName, obj client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[types.NamespacedName]sets.Set[client.ObjectKey]{}
	}
	if w.keys[request] == nil {
		w.keys[request] = sets.New[client.ObjectKey]()
	}
	w.keys[request].Insert(client.ObjectKeyFromObject(obj))
}

// Pending reports whether the request has writes that no Await has waited for.
func (w *Writes) Pending(request types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keys[request]) > 0
}

// Await waits until the cache of c has the request's writes, and forgets them.
// After an error all of them are still pending. into is an empty object of the
// kind, whose content is undefined afterwards.
func (w *Writes) Await(ctx context.Context, c client.Reader, request types.NamespacedName, into client.Object) error {
	w.mu.Lock()
	keys := w.keys[request]
	w.mu.Unlock()
	for key := range keys {
		// Get waits for the client's own writes of this object.
		if err := c.Get(ctx, key, into, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	w.Forget(request)
	return nil
}

// Forget drops the request's writes, for example because its object was deleted.
func (w *Writes) Forget(request types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.keys, request)
}
