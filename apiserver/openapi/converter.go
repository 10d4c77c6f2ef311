package openapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/builder3"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// TypeConverter makes the converter for the named models (the OpenAPI names of
// the kinds of a group version, with all that they refer to), on first use.
func (d *Documents) TypeConverter(models ...string) managedfields.TypeConverter {
	return lazyConverter(sync.OnceValues(func() (managedfields.TypeConverter, error) {
		definitions, err := builder3.BuildOpenAPIDefinitionsForResources(d.ConfigV3(models...), models...)
		if err != nil {
			return nil, err
		}
		return managedfields.NewTypeConverter(definitions, false)
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
