package resource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	metricsscheme "k8s.io/metrics/pkg/client/clientset/versioned/scheme"

	"svc.dev/svc/apis/removed"
)

// schemes returns the schemes with the published Go types: those of k8s.io/api, those
// of modules of their own, and those that k8s.io/api no longer has.
func schemes() []*runtime.Scheme {
	return []*runtime.Scheme{clientgoscheme.Scheme, metricsscheme.Scheme, removed.Scheme()}
}

// Types returns the published types of a version, by kind. The options of
// requests are among them.
func Types(gv schema.GroupVersion) map[string]runtime.Object {
	types := map[string]runtime.Object{}
	for _, s := range schemes() {
		for kind := range s.KnownTypes(gv) {
			if obj, err := s.New(gv.WithKind(kind)); err == nil {
				types[kind] = obj
			}
		}
	}
	return types
}

// newOf makes an empty object of a published type.
func newOf(gvk schema.GroupVersionKind) (runtime.Object, error) {
	for _, s := range schemes() {
		if s.Recognizes(gvk) {
			return s.New(gvk)
		}
	}
	return nil, fmt.Errorf("no published type is %s", gvk)
}

// mustGVK returns the group, version and kind of a published type. It panics for
// any other type, which is a mistake in a declaration.
func mustGVK(obj runtime.Object) schema.GroupVersionKind {
	for _, s := range schemes() {
		if gvks, _, err := s.ObjectKinds(obj); err == nil && len(gvks) > 0 {
			return gvks[0]
		}
	}
	panic(fmt.Sprintf("resource: %T is not a type of k8s.io/api", obj))
}

func listGVK(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}
