// Package written lets a reconciliation wait for what the ones before it, of the
// same request, have written, and for nothing else.
//
// The client of a controller can wait in every List until the cache has all that
// the controller has written so far. With several workers that means to wait for
// what the others write just now. A controller that lists often what it writes
// often does better to list without (client.DisableReadYourWritesConsistency)
// after it has waited with this.
package written

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Objects are the objects of one kind that have been written, by request.
type Objects struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]sets.Set[client.ObjectKey]
}

// Add notes that an object was created, changed or deleted.
func (o *Objects) Add(request types.NamespacedName, obj client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys = map[types.NamespacedName]sets.Set[client.ObjectKey]{}
	}
	if o.keys[request] == nil {
		o.keys[request] = sets.New[client.ObjectKey]()
	}
	o.keys[request].Insert(client.ObjectKeyFromObject(obj))
}

// Any tells whether anything was noted for the request that was not awaited yet.
func (o *Objects) Any(request types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.keys[request]) > 0
}

// Await waits until the cache of c knows of all that was noted for the request.
// into is an object of the kind, which is of no use afterwards.
func (o *Objects) Await(ctx context.Context, c client.Reader, request types.NamespacedName, into client.Object) error {
	o.mu.Lock()
	keys := o.keys[request]
	o.mu.Unlock()
	for key := range keys {
		// The client waits for what it has done to this object.
		if err := c.Get(ctx, key, into, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	o.Forget(request)
	return nil
}

// Forget drops what was noted for the request, as when its object has gone.
func (o *Objects) Forget(request types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.keys, request)
}
