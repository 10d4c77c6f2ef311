package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme registers the hub as the internal version of its kind, the
// kind's defaults, the conversions of its other versions, and the labels of its
// field selectors. The external types must be registered already.
func (k *Kind) AddToScheme(s *runtime.Scheme) error {
	for _, gk := range k.groupKinds() {
		internal := schema.GroupVersion{Group: gk.Group, Version: runtime.APIVersionInternal}
		s.AddKnownTypeWithName(internal.WithKind(gk.Kind), k.New())
		if list := k.NewList(); list != nil {
			s.AddKnownTypeWithName(listGVK(internal.WithKind(gk.Kind)), list)
		}
	}
	s.AddTypeDefaultingFunc(k.New(), func(obj any) { k.Default(obj.(runtime.Object)) })
	if list := k.NewList(); list != nil {
		s.AddTypeDefaultingFunc(list, func(obj any) { defaultItems(obj.(runtime.Object), k.Default) })
	}
	for _, c := range k.Connects {
		if err := addQuery(s, c.Options()); err != nil {
			return fmt.Errorf("subresource %s: %w", c.Name, err)
		}
	}
	for _, a := range k.Actions {
		if a.Default != nil {
			s.AddTypeDefaultingFunc(a.Input(), func(obj any) { a.Default(obj.(runtime.Object)) })
		}
		for _, v := range a.InputVersions {
			if err := v.register(s); err != nil {
				return fmt.Errorf("subresource %s: %w", a.Name, err)
			}
		}
	}
	if err := s.AddFieldLabelConversionFunc(k.Hub, k.fieldLabelFunc(nil)); err != nil {
		return err
	}
	for _, v := range k.Versions {
		if err := s.AddFieldLabelConversionFunc(v.GVK, k.fieldLabelFunc(v.FieldLabels)); err != nil {
			return err
		}
		if err := v.register(s, k); err != nil {
			return fmt.Errorf("version %s: %w", v.GVK.GroupVersion(), err)
		}
		v.addDefaults(s)
	}
	return nil
}

func (v Version) addDefaults(s *runtime.Scheme) {
	if v.Default == nil {
		return
	}
	s.AddTypeDefaultingFunc(v.New(), func(obj any) { v.Default(obj.(runtime.Object)) })
	if list, err := newOf(listGVK(v.GVK)); err == nil {
		s.AddTypeDefaultingFunc(list, func(obj any) { defaultItems(obj.(runtime.Object), v.Default) })
	}
}

// GVKs returns all versions of the kind, the hub first.
func (k *Kind) GVKs() []schema.GroupVersionKind {
	gvks := []schema.GroupVersionKind{k.Hub}
	for _, v := range k.Versions {
		gvks = append(gvks, v.GVK)
	}
	return gvks
}

func (k *Kind) groupKinds() []schema.GroupKind {
	var gks []schema.GroupKind
	for _, gvk := range k.GVKs() {
		if gk := gvk.GroupKind(); !slices.Contains(gks, gk) {
			gks = append(gks, gk)
		}
	}
	return gks
}

// fieldLabelFunc translates the labels of a version's field selectors to the
// paths of Fields. If own is nil, the version uses those paths itself.
func (k *Kind) fieldLabelFunc(own map[string]string) runtime.FieldLabelConversionFunc {
	known := map[string]string{"metadata.name": "metadata.name"}
	if k.Namespaced {
		known["metadata.namespace"] = "metadata.namespace"
	}
	if own == nil {
		for path := range k.Fields {
			known[path] = path
		}
	}
	maps.Copy(known, own)
	return func(label, value string) (string, string, error) {
		path, ok := known[label]
		if !ok {
			return "", "", fmt.Errorf("field label not supported: %s; use %s", label, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		return path, value, nil
	}
}

func defaultItems(list runtime.Object, def func(runtime.Object)) {
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		def(item)
		return nil
	})
}
