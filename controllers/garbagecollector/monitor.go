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

// monitor delivers the objects of one kind to the graph. It is both the
// ListerWatcher and the store of a reflector, and stores nothing itself.
type monitor struct {
	reconciler *reconciler
	resource   discovery.Resource
	kind       schema.GroupKind
	objects    metadata.ResourceInterface
	clock      clock.Clock
	// rediscover is called when the served resources may have changed.
	rediscover func()

	listed  bool
	expires time.Time // the end of the current or last watch
	seen    string    // the newest resource version
}

const (
	// listPage is the number of objects listed at a time.
	listPage = 500
	// minWatchTimeout is the minimum timeout of a watch; the maximum is twice as
	// long.
	minWatchTimeout = 30 * time.Minute
	// stableAfter is how long a watch must work to reset the backoff.
	stableAfter = time.Minute
)

// run watches until ctx is done. It logs the first of a series of failures, and the
// recovery from it.
func (m *monitor) run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(m, &metav1.PartialObjectMetadata{}, m, cache.ReflectorOptions{
		Name: "garbagecollector", TypeDescription: m.resource.GroupVersionResource.String(),
		MinWatchTimeout: minWatchTimeout, Clock: m.clock,
	})
	reflector.WatchListPageSize = listPage
	log := klog.FromContext(ctx).WithValues("resource", m.resource.GroupVersionResource.String())
	// The reflector's messages concern one of many kinds.
	ctx = klog.NewContext(ctx, log.V(3))
	first := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 30 * time.Second}
	backoff, failing := first, false
	for ctx.Err() == nil {
		began := m.clock.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		stable := m.clock.Since(began) > stableAfter
		if failing && (err == nil || stable) {
			log.Info("Garbage collector watches resource again")
			failing = false
		}
		if err != nil && ctx.Err() == nil {
			m.failed(err)
			if !failing && !expired(err) {
				log.Error(err, "Garbage collector cannot watch resource, will retry")
				failing = true
			}
		}
		if stable {
			backoff = first
		}
		select {
		case <-ctx.Done():
		case <-m.clock.After(backoff.Step()):
		}
	}
}

// failed tells the graph that the kind cannot be listed or watched.
func (m *monitor) failed(err error) {
	m.reconciler.change(func(g *graph.Graph) { g.Failing(m.kind) })
	if apierrors.IsNotFound(err) {
		m.rediscover()
	}
}

func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled)
}

// ListWithContext implements cache.ListerWatcherWithContext. It lists the newest
// state, reduced to what the graph needs.
func (m *monitor) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if m.listed {
			m.invalidate()
		}
		// The reflector requests a state that is not older than the newest resource
		// version that it has seen. Together with a limit that means exactly this
		// version, from which a restarted server may not be able to watch.
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

// slim removes what objectOf does not need.
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
		m.invalidate()
	}
	if options.TimeoutSeconds != nil {
		// A watch may end a little before its timeout, by the clock of the server.
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
// WatchList would hold all objects with all of their metadata in memory.
func (m *monitor) IsWatchListSemanticsUnSupported() bool { return true }

// invalidate discards the results of lookups after a watch has ended unexpectedly.
func (m *monitor) invalidate() { m.reconciler.change((*graph.Graph).InvalidateLookups) }

// Add implements cache.ReflectorStore.
func (m *monitor) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *monitor) Update(obj any) error {
	o, err := objectOf(obj.(*metav1.PartialObjectMetadata))
	if err != nil {
		return err
	}
	m.reconciler.change(func(g *graph.Graph) { g.Observe(m.kind, o) })
	m.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *monitor) Delete(obj any) error {
	uid := obj.(*metav1.PartialObjectMetadata).UID
	m.reconciler.change(func(g *graph.Graph) { g.Deleted(uid) })
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
	restored := m.wentBack(version)
	m.listed, m.seen = true, version
	m.reconciler.change(func(g *graph.Graph) {
		if restored {
			// The storage was restored: the graph is newer than the API server.
			g.RemoveKind(m.kind)
			g.Serve(m.kind, m.resource.Namespaced, true)
		}
		g.Replace(m.kind, objects)
	})
	m.changed()
	return nil
}

// wentBack reports whether a list of the newest state is older than what was seen
// before, as the storage was restored from a snapshot.
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

// changed triggers discovery after a change of an object that determines what is
// served. The kinds have these names in every group domain.
func (m *monitor) changed() {
	if m.kind.Kind == "CustomResourceDefinition" || m.kind.Kind == "APIService" {
		m.rediscover()
	}
}
