package openapi

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// TypeConverter returns the converter of the named models (the OpenAPI names of the
// kinds of a group version, and all that they refer to). It is built when it is
// first used.
func (d *Documents) TypeConverter(models ...string) managedfields.TypeConverter {
	return lazyConverter(sync.OnceValues(func() (managedfields.TypeConverter, error) {
		definitions, err := builder3.BuildOpenAPIDefinitionsForResources(d.ConfigV3(models...), models...)
		if err != nil {
			return nil, err
		}
		made, err := managedfields.NewTypeConverter(definitions, false)
		if err != nil {
			return nil, err
		}
		return &trustingConverter{TypeConverter: made}, nil
	}))
}

type lazyConverter func() (managedfields.TypeConverter, error)

// ObjectToTyped implements managedfields.TypeConverter.
func (c lazyConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	made, err := c()
	if err != nil {
		return nil, err
	}
	return made.ObjectToTyped(obj, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c lazyConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	made, err := c()
	if err != nil {
		return nil, err
	}
	return made.TypedToObject(value)
}

// trustingConverter does not validate objects of Go types against the schema, which
// was generated from these types: validation would take half of the time of
// comparing the objects of a write. The one error that is possible, an element of a
// list map without its key, is found by the comparison.
type trustingConverter struct {
	managedfields.TypeConverter
	// types holds, by GroupVersionKind, a *typed.TypedValue of the type.
	types sync.Map
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c *trustingConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if _, untyped := obj.(runtime.Unstructured); untyped || !slices.Contains(options, typed.AllowDuplicates) {
		checked, err := c.TypeConverter.ObjectToTyped(obj, options...)
		if err != nil {
			return nil, err
		}
		return inOrder(obj, checked), nil
	}
	t, err := c.typeOf(obj)
	if err != nil {
		return nil, err
	}
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	//nolint:staticcheck // Deprecated because validation has become cheap; it has not.
	return inOrder(obj, typed.AsTypedUnvalidated(v, t.Schema(), t.TypeRef())), nil
}

// typeOf returns an empty value of an object's type, with its schema.
func (c *trustingConverter) typeOf(obj runtime.Object) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if known, ok := c.types.Load(gvk); ok {
		return known.(*typed.TypedValue), nil
	}
	made, err := c.TypeConverter.ObjectToTyped(emptyOf(gvk))
	if err != nil {
		return nil, err
	}
	c.types.Store(gvk, made)
	return made, nil
}

func emptyOf(gvk schema.GroupVersionKind) runtime.Object {
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(gvk)
	return empty
}
