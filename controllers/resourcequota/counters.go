package resourcequota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// counters watch the metadata of the kinds that a quota counts. A kind has one
// watch for all namespaces, because most namespaces have the same quotas. It stops
// when no quota counts the kind any more.
type counters struct {
	// ctx ends all watches.
	ctx      context.Context
	metadata metadata.Interface
	// enqueue requests the sync of quotas that count an object that was deleted.
	// Admission counts new objects.
	enqueue func(...reconcile.Request)
	running sync.WaitGroup

	mu      sync.Mutex
	kinds   map[schema.GroupVersionResource]*counter
	stopped bool
}

// counter watches one kind for the quotas that count it.
type counter struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	quotas   map[types.NamespacedName]bool
}

// syncTimeout bounds how long a sync waits for the informer of a kind that was not
// counted before.
const syncTimeout = 10 * time.Second

func newCounters(ctx context.Context, client metadata.Interface, enqueue func(...reconcile.Request)) *counters {
	return &counters{ctx: ctx, metadata: client, enqueue: enqueue, kinds: map[schema.GroupVersionResource]*counter{}}
}

// wait waits until ctx is done, and then until all watches have stopped.
func (c *counters) wait(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	c.stopped = true
	for _, counter := range c.kinds {
		counter.stop()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// want sets the kinds that the quota counts; nil is for a quota that was deleted.
// It starts and stops watches accordingly.
func (c *counters) want(quota types.NamespacedName, kinds map[schema.GroupVersionResource]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	for kind := range kinds {
		if c.kinds[kind] == nil {
			c.kinds[kind] = c.begin(kind)
		}
		c.kinds[kind].quotas[quota] = true
	}
	for kind, counter := range c.kinds {
		if kinds[kind] {
			continue
		}
		delete(counter.quotas, quota)
		if len(counter.quotas) == 0 {
			counter.stop()
			delete(c.kinds, kind)
		}
	}
}

// begin starts the watch of a kind.
func (c *counters) begin(kind schema.GroupVersionResource) *counter {
	ctx, stop := context.WithCancel(c.ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(c.metadata, kind, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	deleted := func(obj any) { c.deleted(kind, obj) }
	// Both calls fail only for an informer that has started or stopped.
	_ = informer.SetTransform(onlyName)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: deleted})
	c.running.Go(func() { informer.RunWithContext(ctx) })
	return &counter{informer: informer, stop: stop, quotas: map[types.NamespacedName]bool{}}
}

// onlyName removes everything but the identity of an object.
func onlyName(obj any) (any, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}}, nil
}

// deleted enqueues the quotas that count an object that was deleted.
func (c *counters) deleted(kind schema.GroupVersionResource, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds[kind] == nil {
		return
	}
	for quota := range c.kinds[kind].quotas {
		if quota.Namespace == o.GetNamespace() {
			c.enqueue(reconcile.Request{NamespacedName: quota})
		}
	}
}

// list returns the objects of a kind that is counted in a namespace.
func (c *counters) list(ctx context.Context, kind schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
	c.mu.Lock()
	counter := c.kinds[kind]
	c.mu.Unlock()
	if counter == nil {
		return nil, fmt.Errorf("%s are not counted", kind.GroupResource())
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), counter.informer.HasSynced) {
		return nil, fmt.Errorf("%s cannot be counted yet", kind.GroupResource())
	}
	found, err := counter.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, 0, len(found))
	for _, obj := range found {
		if o, ok := obj.(runtime.Object); ok {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// countedKind is a resource that a quota counts, and its alias in the quota.
type countedKind struct {
	schema.GroupResource
	alias corev1.ResourceName
}
