package node

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Follow sets the client that reads pods, volumes and attachments. It is called before
// all other methods.
func (a *Authorizer) Follow(client kubernetes.Interface) { a.client = client }

// bound returns the pods of a node.
func (a *Authorizer) bound(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := a.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Run keeps the graph up to date from the first request of a node until ctx is done.
// Before, it watches nothing: the server then keeps no cache of pods for it.
func (a *Authorizer) Run(ctx context.Context, clock clock.Clock) {
	select {
	case <-ctx.Done():
		return
	case <-a.nodes:
	}
	g := a.graph
	bound := fields.OneTermNotEqualSelector("spec.nodeName", "")
	follow := func(object runtime.Object, source *cache.ListWatch, store cache.ReflectorStore) func() {
		return func() {
			reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(source, a.client), object, store,
				cache.ReflectorOptions{Name: "node-authorizer", Clock: clock})
			reflector.RunWithContext(ctx)
		}
	}
	var running sync.WaitGroup
	var unfilled atomic.Int32
	unfilled.Store(3)
	filled := func() {
		if unfilled.Add(-1) == 0 {
			close(a.filled)
		}
	}
	running.Go(follow(&corev1.Pod{}, sourceOf(a.client.CoreV1().Pods(metav1.NamespaceAll), bound), storeOf(g, g.setPod, g.removePod, filled)))
	running.Go(follow(&corev1.PersistentVolume{}, sourceOf(a.client.CoreV1().PersistentVolumes(), fields.Everything()), storeOf(g, g.setVolume, g.removeVolume, filled)))
	running.Go(follow(&storagev1.VolumeAttachment{}, sourceOf(a.client.StorageV1().VolumeAttachments(), fields.Everything()), storeOf(g, g.setAttachment, g.removeAttachment, filled)))
	running.Wait()
}

// lister is a typed client of one resource.
type lister[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func sourceOf[List runtime.Object](client lister[List], selector fields.Selector) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector.String()
			return client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector.String()
			return client.Watch(ctx, options)
		},
	}
}

// store is the graph as the store of a reflector of one type. It keeps no objects.
type store[T any] struct {
	graph       *graph
	set, remove func(T)
	// filled is called when the store has been filled once.
	filled func()
}

func storeOf[T any](g *graph, set, remove func(T), filled func()) store[T] {
	return store[T]{g, set, remove, sync.OnceFunc(filled)}
}

// Add implements cache.ReflectorStore.
func (s store[T]) Add(object any) error { return s.change(s.set, object) }

// Update implements cache.ReflectorStore.
func (s store[T]) Update(object any) error { return s.change(s.set, object) }

// Delete implements cache.ReflectorStore.
func (s store[T]) Delete(object any) error { return s.change(s.remove, object) }

func (s store[T]) change(change func(T), object any) error {
	s.graph.mu.Lock()
	defer s.graph.mu.Unlock()
	change(object.(T))
	return nil
}

// Replace implements cache.ReflectorStore.
func (s store[T]) Replace(objects []any, _ string) error {
	s.graph.mu.Lock()
	defer s.graph.mu.Unlock()
	var zero T
	s.graph.reset(zero)
	for _, object := range objects {
		s.set(object.(T))
	}
	s.filled()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s store[T]) Resync() error { return nil }
