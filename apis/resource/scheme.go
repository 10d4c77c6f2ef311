package resource

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme registers the hub as the internal version of its kind, the
// kind's defaults, the conversions of its other versions, and the labels that
// its field selectors know. The external types must be registered already.
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
	for _, gvk := range k.GVKs() {
		if err := s.AddFieldLabelConversionFunc(gvk, k.fieldLabel); err != nil {
			return err
		}
	}
	for _, v := range k.Versions {
		if err := v.register(s, k); err != nil {
			return fmt.Errorf("version %s: %w", v.GVK.GroupVersion(), err)
		}
	}
	return nil
}

// GVKs are all versions of the kind, the hub first.
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

// fieldLabel accepts the labels of a field selector that the kind knows.
func (k *Kind) fieldLabel(label, value string) (string, string, error) {
	_, known := k.Fields[label]
	if !known && label != "metadata.name" && (label != "metadata.namespace" || !k.Namespaced) {
		return "", "", fmt.Errorf("field label not supported: %s; use %s", label, strings.Join(k.fieldLabels(), ", "))
	}
	return label, value, nil
}

func (k *Kind) fieldLabels() []string {
	labels := []string{"metadata.name"}
	if k.Namespaced {
		labels = append(labels, "metadata.namespace")
	}
	for label := range k.Fields {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return labels
}

func defaultItems(list runtime.Object, def func(runtime.Object)) {
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		def(item)
		return nil
	})
}
