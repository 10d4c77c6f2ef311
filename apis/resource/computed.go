package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Computed declares a type whose objects are not stored but computed for each
// request, for example the current usage of a node. They can be read (get and
// list) and not written. Its version is served even if it is a beta.
type Computed[T Object] struct {
	// These are as in Type.
	Name       string
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
	Columns    []Column[T]

	// Get computes one object. Its errors are apierrors.
	Get func(ctx context.Context, env *Env, namespace, name string) (T, error)
	// List computes the selected objects, and no others, in the order of their
	// namespaces and names. Its errors are apierrors.
	List func(ctx context.Context, env *Env, selection Selection) ([]T, error)
}

// Selection selects the objects of a list. Its selectors are never nil; the
// fields are metadata.name and, if the kind is namespaced, metadata.namespace.
type Selection struct {
	// Namespace is empty for all namespaces.
	Namespace string
	Labels    labels.Selector
	Fields    fields.Selector
}

// Selects reports whether an object with this metadata is selected.
func (s Selection) Selects(m metav1.Object) bool {
	return (s.Namespace == "" || s.Namespace == m.GetNamespace()) && s.Labels.Matches(labels.Set(m.GetLabels())) &&
		s.Fields.Matches(fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()})
}
