package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// monitor feeds the objects of one kind to the graph. It is what a reflector
// lists and watches, and the store that it fills, and keeps nothing itself.
type monitor struct {
	collector *collector
	resource  discovery.Resource
	kind      schema.GroupKind
	objects   metadata.ResourceInterface
	clock     clock.Clock
	// rediscover is called when what is served may have changed.
	rediscover func()

	listed  bool
	expires time.Time // of the watch that runs, or ran last
	seen    string    // the newest resource version
}

const (
	// listPage is how many objects are listed at a time.
	listPage = 500
	// watchAtLeast is how long a watch lasts that nothing ends; at most, twice
	// as long.
	watchAtLeast = 30 * time.Minute
	// steady is how long a watch has to work to be thought well of.
	steady = time.Minute
)

// run watches until ctx is done. It tells once that it cannot, and once that it
// can again.
func (m *monitor) run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(m, &metav1.PartialObjectMetadata{}, m, cache.ReflectorOptions{
		Name: "garbagecollector", TypeDescription: m.resource.GroupVersionResource.String(),
		MinWatchTimeout: watchAtLeast, Clock: m.clock,
	})
	reflector.WatchListPageSize = listPage
	log := klog.FromContext(ctx).WithValues("resource", m.resource.GroupVersionResource.String())
	// What the reflector tells concerns one of many kinds.
	ctx = klog.NewContext(ctx, log.V(3))
	first := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 30 * time.Second}
	backoff, told := first, false
	for ctx.Err() == nil {
		began := m.clock.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		steadily := m.clock.Since(began) > steady
		if told && (err == nil || steadily) {
			log.Info("The garbage collector watches the resource again")
			told = false
		}
		if err != nil && ctx.Err() == nil {
			m.failed(err)
			if !told && !expired(err) {
				log.Error(err, "The garbage collector cannot watch the resource; it keeps trying")
				told = true
			}
		}
		if steadily {
			backoff = first
		}
		select {
		case <-ctx.Done():
		case <-m.clock.After(backoff.Step()):
		}
	}
}

// failed tells that the kind cannot be listed or watched.
func (m *monitor) failed(err error) {
	m.collector.change(func(g *graph.Graph) { g.Failing(m.kind) })
	if apierrors.IsNotFound(err) {
		m.rediscover()
	}
}

func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}

// ListWithContext implements cache.ListerWatcherWithContext. It lists what is
// there now, and keeps what the graph needs.
func (m *monitor) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if m.listed {
			m.doubt()
		}
		// The reflector asks for a state that is not older than what it has seen.
		// Together with a limit that means that very state, from which a server
		// that was restarted since may not be able to watch.
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
	list, err := m.objects.List(ctx, options)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		slim(&list.Items[i])
	}
	return list, nil
}

// slim leaves what objectOf takes.
func slim(o *metav1.PartialObjectMetadata) {
	o.ObjectMeta = metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		OwnerReferences: o.OwnerReferences, Finalizers: o.Finalizers, DeletionTimestamp: o.DeletionTimestamp,
	}
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (m *monitor) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	now := m.clock.Now()
	if now.Before(m.expires) {
		m.doubt()
	}
	if options.TimeoutSeconds != nil {
		// A watch may end a little before the server's clock says so.
		m.expires = now.Add(time.Duration(*options.TimeoutSeconds)*time.Second - 5*time.Second)
	}
	return m.objects.Watch(ctx, options)
}

// List implements cache.ListerWatcher, which the reflector does not use.
func (m *monitor) List(options metav1.ListOptions) (runtime.Object, error) {
	return m.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher, which the reflector does not use.
func (m *monitor) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return m.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported makes the reflector list page by page: a
// watch that begins with all objects holds them with all of their metadata.
func (m *monitor) IsWatchListSemanticsUnSupported() bool { return true }

// doubt tells that the watch has not ended as it should.
func (m *monitor) doubt() { m.collector.change((*graph.Graph).Doubt) }

// Add implements cache.ReflectorStore.
func (m *monitor) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *monitor) Update(obj any) error {
	o, err := objectOf(obj.(*metav1.PartialObjectMetadata))
	if err != nil {
		return err
	}
	m.collector.change(func(g *graph.Graph) { g.Observe(m.kind, o) })
	m.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *monitor) Delete(obj any) error {
	uid := obj.(*metav1.PartialObjectMetadata).UID
	m.collector.change(func(g *graph.Graph) { g.Gone(uid) })
	m.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *monitor) Replace(list []any, version string) error {
	objects := make([]graph.Object, 0, len(list))
	for _, obj := range list {
		o, err := objectOf(obj.(*metav1.PartialObjectMetadata))
		if err != nil {
			return fmt.Errorf("%s: %w", m.resource.GroupVersionResource, err)
		}
		objects = append(objects, o)
	}
	back := m.wentBack(version)
	m.listed, m.seen = true, version
	m.collector.change(func(g *graph.Graph) {
		if back {
			// What is known is from a future that is not going to come.
			g.Vanish(m.kind)
			g.Serve(m.kind, m.resource.Namespaced, true)
		}
		g.Replace(m.kind, objects)
	})
	m.changed()
	return nil
}

// wentBack tells whether a list is older than what was seen before, although
// nothing older was asked for: the storage was restored.
func (m *monitor) wentBack(version string) bool {
	if m.seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, m.seen)
	return err == nil && order < 0
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (m *monitor) UpdateResourceVersion(version string) { m.seen = version }

// Resync implements cache.ReflectorStore.
func (m *monitor) Resync() error { return nil }

// changed looks out for objects that say what is served. Their kinds go by these
// names in every group domain.
func (m *monitor) changed() {
	if m.kind.Kind == "CustomResourceDefinition" || m.kind.Kind == "APIService" {
		m.rediscover()
	}
}
