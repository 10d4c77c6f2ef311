package storage

import (
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apiserver/watchmux"
)

// deleteWorkers is how many objects of a deletecollection are deleted at a time.
const deleteWorkers = 16

// RESTOptions returns the storage options of resource types. codec encodes their
// objects, in the versions that versioner selects.
func (b *Backend) RESTOptions(codec runtime.Codec, versioner runtime.GroupVersioner) generic.RESTOptionsGetter {
	config := *storagebackend.NewDefaultConfig(b.config.Prefix, codec)
	config.EncodeVersioner = versioner
	return restOptions{backend: b, config: config}
}

type restOptions struct {
	backend *Backend
	config  storagebackend.Config
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := o.config.ForResource(resource)
	config.Transformer = o.backend.transformer(resource)
	return generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               o.backend.store,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: deleteWorkers,
		ResourcePrefix:          keyPrefix(resource),
	}, nil
}

// keyPrefix returns the prefix of a type's keys, below the prefix of all keys. It
// contains the group, as two groups can have types of the same plural.
func keyPrefix(resource schema.GroupResource) string {
	if resource.Group == "" {
		return "/" + resource.Resource
	}
	return path.Join("/", resource.Group, resource.Resource)
}

// store implements generic.StorageDecorator.
func (b *Backend) store(config *storagebackend.ConfigForResource, prefix string, keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, closeRaw, err := b.etcdStore(config, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, err
	}
	own := b.streams.wrap(raw)
	own.recorded = b.config.HistoryBytes > 0
	cached := &lazyCache{
		Interface: raw,
		own:       own,
		parts:     b.config.PartWatches,
		config: cacher.Config{
			Storage:             own,
			Versioner:           raw.Versioner(),
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      prefix,
			KeyFunc:             keyFunc,
			NewFunc:             newFunc,
			NewListFunc:         newListFunc,
			GetAttrsFunc:        attrs,
			IndexerFuncs:        triggers,
			Indexers:            indexers,
			Codec:               config.Codec,
			Clock:               alignedClock{b.config.Clock},
		},
	}
	if b.config.SharedWatches {
		cached.watches = watchmux.New(raw.Versioner(), func() bool { return feature.DefaultFeatureSupportChecker.Supports(storage.RequestWatchProgress) })
	}
	remove := b.addStore(cached, config.GroupResource)
	var store storage.Interface = translatedErrors{cached}
	if b.config.Writable != nil {
		store = guardedWrites{store, b.config.Writable, b.config.Deletable}
	}
	var once sync.Once
	return store, func() {
		once.Do(func() {
			remove()
			cached.stop()
			closeRaw()
		})
	}, nil
}

// etcdStore returns the library's store without a watch cache, and what closes it. If the gate
// AllowUnsafeMalformedObjectDeletion is on, a list names the objects that cannot be read, and
// one of them can be deleted without reading it (KEP-3926).
func (b *Backend) etcdStore(config *storagebackend.ConfigForResource, prefix string, newFunc, newListFunc func() runtime.Object) (storage.Interface, func(), error) {
	versioner := storage.APIObjectVersioner{}
	codec, transformer, decoder := config.Codec, config.Transformer, etcd3.NewDefaultDecoder(config.Codec, versioner)
	if b.config.HistoryBytes > 0 {
		codec = recordingCodec{codec, &history{clock: b.config.Clock, window: config.EventsHistoryWindow, limit: b.config.HistoryBytes}}
	}
	unsafeDeletion := utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
	if unsafeDeletion {
		transformer, decoder = etcd3.WithCorruptObjErrorHandlingTransformer(transformer), etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	etcd := b.clusterOf(config.GroupResource)
	store, err := etcd3.New(etcd.client, etcd.compactor, codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource,
		transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, err
	}
	if unsafeDeletion {
		return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(store, config.GroupResource), store.Close, nil
	}
	return store, store.Close, nil
}
