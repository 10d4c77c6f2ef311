package view

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// describe returns what discovery says of a path of the version, and its kind: what the
// library would return with the routes of the path.
func (v *version) describe(p string) (metav1.APIResource, schema.GroupVersionKind, error) {
	storage := v.Storage[p]
	kind, err := genericapi.GetResourceKind(v.GroupVersion, storage, v.Typer)
	if err != nil {
		return metav1.APIResource{}, kind, fmt.Errorf("%s: %w", p, err)
	}
	name, _, isSubresource := strings.Cut(p, "/")
	resource, ok := v.Storage[name].(names)
	if !ok {
		return metav1.APIResource{}, kind, fmt.Errorf("%s: the storage of %s has no scope or no singular name", p, name)
	}
	made := metav1.APIResource{Name: p, Namespaced: resource.NamespaceScoped(), Kind: kind.Kind, Verbs: verbs(storage)}
	if provider, ok := storage.(rest.KindProvider); ok {
		made.Kind = provider.Kind()
	}
	if provider, ok := storage.(rest.GroupVersionKindProvider); ok {
		gvk := provider.GroupVersionKind(v.GroupVersion)
		made.Group, made.Version, made.Kind = gvk.Group, gvk.Version, gvk.Kind
	}
	if provider, ok := storage.(rest.ShortNamesProvider); ok {
		made.ShortNames = provider.ShortNames()
	}
	if provider, ok := storage.(rest.CategoriesProvider); ok {
		made.Categories = provider.Categories()
	}
	if !isSubresource {
		made.SingularName = resource.GetSingularName()
	}
	made.StorageVersionHash, err = v.storageVersionHash(storage)
	return made, kind, err
}

// storageVersionHash returns the hash of the version in which a storage keeps objects,
// or nothing if it keeps none.
func (v *version) storageVersionHash(storage rest.Storage) (string, error) {
	provider, ok := storage.(rest.StorageVersionProvider)
	if !ok || provider.StorageVersion() == nil || !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.StorageVersionHash) {
		return "", nil
	}
	object := storage.New()
	gvks, _, err := v.Typer.ObjectKinds(object)
	if err != nil {
		return "", err
	}
	gvk, ok := provider.StorageVersion().KindForGroupVersionKinds(gvks)
	if !ok {
		return "", fmt.Errorf("no version stores %T", object)
	}
	return discovery.StorageVersionHash(gvk.Group, gvk.Version, gvk.Kind), nil
}

// connectVerbs are the verbs of discovery by the methods of a connection.
var connectVerbs = map[string]string{
	http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// verbs returns the verbs of a storage, sorted.
func verbs(storage rest.Storage) []string {
	found := []string{}
	add := func(verb string, ok bool) {
		if ok {
			found = append(found, verb)
		}
	}
	_, getter := storage.(rest.Getter)
	_, getterWithOptions := storage.(rest.GetterWithOptions)
	_, creater := storage.(rest.Creater)
	_, namedCreater := storage.(rest.NamedCreater)
	_, lister := storage.(rest.Lister)
	_, watcher := storage.(rest.Watcher)
	_, updater := storage.(rest.Updater)
	_, patcher := storage.(rest.Patcher)
	_, deleter := storage.(rest.GracefulDeleter)
	_, collectionDeleter := storage.(rest.CollectionDeleter)
	add("get", getter || getterWithOptions)
	add("create", creater || namedCreater)
	add("list", lister)
	add("watch", watcher)
	add("update", updater)
	add("patch", patcher)
	add("delete", deleter)
	add("deletecollection", collectionDeleter)
	if connecter, ok := storage.(rest.Connecter); ok {
		for _, method := range connecter.ConnectMethods() {
			add(connectVerbs[method], connectVerbs[method] != "")
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
