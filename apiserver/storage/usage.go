package storage

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// Objects returns the number of objects of each resource type that has a store, or
// -1 if etcd does not answer before ctx ends.
func (b *Backend) Objects(ctx context.Context) map[schema.GroupResource]int64 {
	b.storesMu.Lock()
	stores := maps.Clone(b.stores)
	b.storesMu.Unlock()
	counts := make(map[schema.GroupResource]int64, len(stores))
	for store, resource := range stores {
		stats, err := store.Stats(ctx)
		if err != nil {
			stats.ObjectCount = -1
		}
		counts[resource] = stats.ObjectCount
	}
	return counts
}

// addStore makes Objects count the objects of a store, until the function that it
// returns is called.
func (b *Backend) addStore(s storage.Interface, resource schema.GroupResource) (remove func()) {
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
	endpoints := b.config.Servers
	if b.config.Client != nil {
		endpoints = endpoints[:1] // its maintenance client does not use the name
	}
	var sizes []int64
	for _, endpoint := range endpoints {
		if status, err := b.client.Client.Status(ctx, endpoint); err == nil {
			sizes = append(sizes, status.DbSize)
		}
	}
	return sizes
}
