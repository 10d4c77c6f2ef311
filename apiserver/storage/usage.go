package storage

import (
	"context"
	"maps"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// Objects returns the number of objects of each resource type that has a store, or
// -1 if etcd does not answer before ctx ends. They are counted in etcd: a watch cache
// would first wait until it is current, and copy the keys of all objects.
func (b *Backend) Objects(ctx context.Context) map[schema.GroupResource]int64 {
	b.storesMu.Lock()
	stores := maps.Clone(b.stores)
	b.storesMu.Unlock()
	counts := make(map[schema.GroupResource]int64, len(stores))
	for _, resource := range stores {
		if _, counted := counts[resource]; counted { // by the store of another version
			continue
		}
		count, err := b.clusterOf(resource).client.Kubernetes.Count(ctx, b.keys(resource), kubernetes.CountOptions{})
		if err != nil {
			count = -1
		}
		counts[resource] = count
	}
	return counts
}

// countInterval is how often CountObjects counts, as kube-apiserver does.
const countInterval = time.Minute

// CountObjects calls set with the number and the average size of the objects of
// each type that has a watch cache, every minute until ctx ends: from them flow
// control estimates the cost of a list. A type without a cache has had no list, and
// asking etcd for its objects would cost more than the estimate is worth.
func (b *Backend) CountObjects(ctx context.Context, set func(resource string, stats storage.Stats)) {
	ticker := b.config.Clock.NewTicker(countInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			b.countObjects(ctx, set)
		}
	}
}

func (b *Backend) countObjects(ctx context.Context, set func(resource string, stats storage.Stats)) {
	b.storesMu.Lock()
	stores := maps.Clone(b.stores)
	b.storesMu.Unlock()
	for store, resource := range stores {
		if store.opened.Load() == nil {
			continue
		}
		stats, err := store.Stats(ctx)
		if err != nil {
			// After three minutes flow control takes the greatest cost.
			klog.FromContext(ctx).V(4).Info("Failed to count stored objects, will retry", "resource", resource, "err", err)
			continue
		}
		set(resource.String(), stats)
	}
}

// addStore makes Objects count the objects of a store, until the function that it
// returns is called.
func (b *Backend) addStore(s *lazyCache, resource schema.GroupResource) (remove func()) {
	b.storesMu.Lock()
	defer b.storesMu.Unlock()
	b.stores[s] = resource
	return func() {
		b.storesMu.Lock()
		defer b.storesMu.Unlock()
		delete(b.stores, s)
	}
}

// Sizes returns the size of the database of each etcd server, in bytes, without
// those that do not answer before ctx ends.
func (b *Backend) Sizes(ctx context.Context) []int64 {
	var sizes []int64
	add := func(c *cluster, endpoints []string) {
		for _, endpoint := range endpoints {
			if status, err := c.client.Client.Status(ctx, endpoint); err == nil {
				sizes = append(sizes, status.DbSize)
			}
		}
	}
	endpoints := b.config.Servers
	if b.config.Client != nil {
		endpoints = endpoints[:1] // its maintenance client does not use the name
	}
	add(b.main, endpoints)
	b.overrides.each(func(c *cluster) { add(c, c.servers) })
	return sizes
}
