package registry

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/footprint"
)

type createOptions = metav1.CreateOptions

// mainREST is the storage of a resource type itself.
type mainREST struct {
	*genericregistry.Store
	kind     *resource.Kind
	strategy *strategy
}

var (
	_ rest.StandardStorage    = &mainREST{}
	_ rest.ShortNamesProvider = &mainREST{}
	_ rest.CategoriesProvider = &mainREST{}
)

func newMain(kind *resource.Kind, scheme *runtime.Scheme, options generic.RESTOptionsGetter, env *resource.Env) (*mainREST, error) {
	byField, err := trigger(kind)
	if err != nil {
		return nil, err
	}
	s := newStrategy(kind, scheme, env)
	singular := kind.Resource()
	singular.Resource = kind.Singular
	store := &genericregistry.Store{
		NewFunc:                   kind.New,
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  kind.Resource(),
		SingularQualifiedResource: singular,
		PredicateFunc:             predicate(kind),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
		TableConvertor:            newTable(kind, env.Clock),
		ReturnDeletedObject:       kind.GracePeriod != nil || kind.ReturnDeleted,
	}
	if kind.Status {
		store.ResetFieldsStrategy = resets(kind, "status")
	}
	if kind.GracePeriod != nil {
		store.DeleteStrategy = gracefulStrategy{s}
	}
	if kind.TTL != nil {
		seconds := uint64(kind.TTL(env) / time.Second)
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	if kind.Held != nil {
		store.ShouldDeleteDuringUpdate = func(ctx context.Context, key string, obj, existing runtime.Object) bool {
			return !kind.Held(obj) && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
		}
	}
	setHooks(store, s, env)
	if err := store.CompleteWithOptions(&generic.StoreOptions{
		RESTOptions: options,
		AttrFunc:    attributes(kind),
		TriggerFunc: storage.IndexerFuncs{kind.WatchField: byField},
		Indexers:    indexers(kind, byField),
	}); err != nil {
		return nil, err
	}
	return &mainREST{Store: store, kind: kind, strategy: s}, nil
}

// ShortNames implements rest.ShortNamesProvider.
func (m *mainREST) ShortNames() []string { return m.kind.ShortNames }

// Categories implements rest.CategoriesProvider.
func (m *mainREST) Categories() []string { return m.kind.Categories }

// Delete implements rest.GracefulDeleter. An object of a kind with Terminate is
// first marked as terminating, and deleted when it is no longer held.
func (m *mainREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	footprint.GrowStack() // the library writes in a goroutine of its own
	if m.kind.Terminate == nil {
		return m.Store.Delete(ctx, name, validate, options)
	}
	return m.terminate(ctx, name, validate, options)
}

// served returns what a view installs of the type. A kind with Terminate has no
// deletecollection: one request must not delete all namespaces.
func (m *mainREST) served() rest.Storage {
	if m.kind.Terminate != nil {
		return struct{ withoutDeleteCollection }{m}
	}
	return m
}

// withoutDeleteCollection is what mainREST serves, except for rest.CollectionDeleter.
type withoutDeleteCollection interface {
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.Getter
	rest.Lister
	rest.CreaterUpdater
	rest.GracefulDeleter
	rest.MayReturnFullObjectDeleter
	rest.CorruptObjectDeleterProvider
	rest.Watcher
	rest.ResetFieldsStrategy
	rest.StorageVersionProvider
	rest.StorageWithReadiness
}

// attributes returns the labels and fields that selectors of the kind can use. The
// watch cache keeps them for each object: empty fields are left out, since selectors
// do not distinguish them from missing ones.
func attributes(kind *resource.Kind) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, nil, err
		}
		set := fields.Set{}
		set["metadata.name"] = m.GetName()
		if kind.Namespaced {
			set["metadata.namespace"] = m.GetNamespace()
		}
		for path, value := range kind.Fields {
			if text := value(obj); text != "" {
				set[path] = text
			}
		}
		return m.GetLabels(), set, nil
	}
}

func predicate(kind *resource.Kind) func(labels.Selector, fields.Selector) storage.SelectionPredicate {
	attrs := attributes(kind)
	return func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
		// The watch cache uses the index only if its field is named here;
		// otherwise every event would go to every watcher.
		return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attrs, IndexFields: []string{kind.WatchField}}
	}
}

// trigger returns the value by which the watch cache finds the watchers of an event.
func trigger(kind *resource.Kind) (storage.IndexerFunc, error) {
	if kind.WatchField == "metadata.name" {
		return func(obj runtime.Object) string { return metaOf(obj).GetName() }, nil
	}
	value := kind.Fields[kind.WatchField]
	if value == nil {
		return nil, fmt.Errorf("WatchField %q is not one of the kind's Fields; add it to them", kind.WatchField)
	}
	return value, nil
}

// indexers returns the index of the WatchField, by which lists are read from the
// watch cache. Names are keys and need no index.
func indexers(kind *resource.Kind, byField storage.IndexerFunc) *cache.Indexers {
	if kind.WatchField == "metadata.name" {
		return nil
	}
	return &cache.Indexers{storage.FieldIndex(kind.WatchField): func(obj any) ([]string, error) {
		object, ok := obj.(runtime.Object)
		if !ok {
			return nil, fmt.Errorf("the watch cache holds a %T among %s", obj, kind.Name)
		}
		return []string{byField(object)}, nil
	}}
}

// resets returns the fields that an endpoint ignores in requests, for every
// version of the kind.
func resets(kind *resource.Kind, paths ...string) resetFields {
	set := fieldpath.NewSet()
	for _, path := range paths {
		set.Insert(fieldPath(path))
	}
	r := resetFields{}
	for _, gvk := range kind.GVKs() {
		r[fieldpath.APIVersion(gvk.GroupVersion().String())] = set
	}
	return r
}
