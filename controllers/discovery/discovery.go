// Package discovery discovers the resources that the API server serves: built-in
// and custom ones, and those of aggregated API servers.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/releases"
)

// Resource is a resource in the version that the server prefers.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Verbs      []string
}

// Can reports whether the resource has all the verbs.
func (r Resource) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.Verbs, v) })
}

// Failure is a version of a group that could not be discovered.
type Failure struct {
	Err error
	// Known is true if it was discovered before. Last are its resources then.
	Known bool
	Last  []Resource
}

// Snapshot is an immutable result of discovery.
type Snapshot struct {
	Resources []Resource
	// Failed are the versions of groups whose resources are not in Resources.
	Failed map[schema.GroupVersion]Failure
}

// Discovery caches the last snapshot. It is safe for concurrent use.
type Discovery struct {
	client discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock

	mu    sync.Mutex
	taken time.Time // when the request for last was sent
	last  Snapshot
	// release is 0 until it is known.
	release releases.Release
	known   map[schema.GroupVersion][]Resource
}

// New returns a Discovery without a snapshot.
func New(client discovery.DiscoveryInterfaceWithContext, c clock.PassiveClock) *Discovery {
	return &Discovery{client: client, clock: c, known: map[schema.GroupVersion][]Resource{}}
}

// Since returns a snapshot that was requested at t or later, and requests one if
// necessary. Concurrent calls share one request. It fails only if nothing can be
// discovered.
func (d *Discovery) Since(ctx context.Context, t time.Time) (Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.taken.IsZero() && !d.taken.Before(t) {
		return d.last, nil
	}
	began := d.clock.Now()
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, d.client)
	failed := &discovery.ErrGroupDiscoveryFailed{}
	if err != nil && !errors.As(err, &failed) {
		return Snapshot{}, fmt.Errorf("discover what the API server serves: %w", err)
	}
	if d.last, err = d.snapshot(lists, failed.Groups); err != nil {
		return Snapshot{}, err
	}
	d.taken = began
	return d.last, nil
}

// Serves reports whether the API server serves a subresource, such as "scale", of a resource.
// It asks the API server each time.
func (d *Discovery) Serves(ctx context.Context, of schema.GroupVersionResource, subresource string) (bool, error) {
	list, err := d.client.ServerResourcesForGroupVersionWithContext(ctx, of.GroupVersion().String())
	if err != nil {
		return false, fmt.Errorf("discover the resources of %s: %w", of.GroupVersion(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == of.Resource+"/"+subresource }), nil
}

func (d *Discovery) snapshot(lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error) (Snapshot, error) {
	s := Snapshot{Failed: map[schema.GroupVersion]Failure{}}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return Snapshot{}, fmt.Errorf("the API server serves %q: %w", list.GroupVersion, err)
		}
		resources := make([]Resource, 0, len(list.APIResources))
		for _, r := range list.APIResources {
			resources = append(resources, Resource{gv.WithResource(r.Name), r.Kind, r.Namespaced, r.Verbs})
		}
		s.Resources = append(s.Resources, resources...)
		d.known[gv] = resources
	}
	for gv, err := range failed {
		last, known := d.known[gv]
		s.Failed[gv] = Failure{Err: err, Known: known, Last: last}
	}
	return s, nil
}
