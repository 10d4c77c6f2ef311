package controllers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	watchtools "k8s.io/client-go/tools/watch"
)

// recorder follows all objects of one system: what they are, and in which order they
// were created, scaled, deleted and removed.
type recorder struct {
	client  dynamic.Interface
	running sync.WaitGroup

	mu     sync.Mutex
	places map[string]*record
	failed error
}

// record is what was seen of a scenario.
type record struct {
	changed time.Time
	live    map[types.UID]*unstructured.Unstructured
	// seen are all objects, also those that have gone.
	seen    map[types.UID]*seen
	history []change
}

// seen is an object at its creation. The revision orders the objects of all kinds.
type seen struct {
	object   *unstructured.Unstructured
	revision uint64
}

// change is a step in the life of an object: create, scale, delete or gone.
type change struct {
	revision uint64
	what     string
	object   *unstructured.Unstructured
}

// startRecorder lists and watches the kinds until the context ends.
func startRecorder(ctx context.Context, client dynamic.Interface, kinds []schema.GroupVersionResource) (*recorder, error) {
	r := &recorder{client: client, places: map[string]*record{}}
	for _, kind := range kinds {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		for i := range list.Items {
			r.add(watch.Added, &list.Items[i])
		}
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), lister{client.Resource(kind)})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		r.running.Go(func() { r.follow(ctx, kind, watcher) })
	}
	return r, nil
}

type lister struct{ resource dynamic.ResourceInterface }

func (l lister) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return l.resource.Watch(ctx, o)
}

func (r *recorder) follow(ctx context.Context, kind schema.GroupVersionResource, watcher *watchtools.RetryWatcher) {
	for event := range watcher.ResultChan() {
		switch object := event.Object.(type) {
		case *unstructured.Unstructured:
			r.add(event.Type, object)
		default:
			r.fail(fmt.Errorf("watch of %s: %w", kind, apierrors.FromObject(event.Object)))
		}
	}
	if ctx.Err() == nil {
		r.fail(fmt.Errorf("the watch of %s has ended", kind))
	}
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

// placeOf returns the scenario of an object: its namespace or, in none, the part of its
// name before the first hyphen; of an attachment, whose name is a hash, that of its volume.
func placeOf(object *unstructured.Unstructured) string {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace
	}
	name := object.GetName()
	if object.GetKind() == "VolumeAttachment" {
		name, _, _ = unstructured.NestedString(object.Object, "spec", "source", "persistentVolumeName")
	}
	place, _, _ := strings.Cut(name, "-")
	return place
}

func (r *recorder) add(event watch.EventType, object *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.place(placeOf(object))
	if object.GetKind() != "Event" {
		p.changed = time.Now()
	}
	revision, _ := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	uid := object.GetUID()
	before := p.live[uid]
	note := func(what string) { p.history = append(p.history, change{revision, what, object}) }
	if p.seen[uid] == nil {
		p.seen[uid] = &seen{object, revision}
		note("create")
	}
	switch {
	case event == watch.Deleted:
		note("gone")
		delete(p.live, uid)
		return
	case before != nil:
		if before.GetDeletionTimestamp() == nil && object.GetDeletionTimestamp() != nil {
			note("delete")
		}
		if from, to := replicas(before), replicas(object); from != to {
			note(fmt.Sprintf("scale %d to %d", from, to))
		}
	}
	p.live[uid] = object
}

func replicas(object *unstructured.Unstructured) int64 {
	n, ok, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
	if !ok || err != nil {
		return -1
	}
	return n
}

// place returns the record of a scenario. The caller has the lock.
func (r *recorder) place(name string) *record {
	if r.places[name] == nil {
		r.places[name] = &record{live: map[types.UID]*unstructured.Unstructured{}, seen: map[types.UID]*seen{}}
	}
	return r.places[name]
}

// read calls a function with the record of a scenario, which must not keep it.
func (r *recorder) read(name string, f func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.place(name))
}

// find returns an object of a scenario, or nil.
func (r *recorder) find(name, kind, object string) (found *unstructured.Unstructured) {
	r.read(name, func(p *record) {
		for _, o := range p.live {
			if o.GetKind() == kind && o.GetName() == object {
				found = o
			}
		}
	})
	return found
}

// quiet returns for how long nothing of a scenario has changed.
func (r *recorder) quiet(name string) (d time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.place(name).changed), r.failed
}
