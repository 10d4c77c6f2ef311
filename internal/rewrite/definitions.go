package rewrite

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// Several returns the definitions whose custom resources may be stored in several
// versions and which the API server stores in their present one.
func (r *Rewriter) Several(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list, err := r.extensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return len(d.Status.StoredVersions) < 2 || !r.stores(&d)
	}), nil
}

// stores reports whether the API server has learned of the definition's storage version:
// a change of that takes a moment.
func (r *Rewriter) stores(d *apiextensionsv1.CustomResourceDefinition) bool {
	want := discovery.StorageVersionHash(d.Spec.Group, storageVersion(d), d.Spec.Names.Kind)
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		list, err := r.discovery.ServerResourcesForGroupVersion(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}.String())
		return err == nil && slices.ContainsFunc(list.APIResources, func(resource metav1.APIResource) bool {
			return resource.Name == d.Spec.Names.Plural && resource.StorageVersionHash == want
		})
	}
	return false
}

func storageVersion(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// StoredVersions removes the versions in which the objects of definitions are no longer
// stored from their status; such a version may then be removed from the definition.
// Several has returned the definitions before all objects of the rewritten resources were
// rewritten. It returns the names of the definitions that it has changed, and fails for
// one that another client has changed meanwhile.
func (r *Rewriter) StoredVersions(ctx context.Context, several []apiextensionsv1.CustomResourceDefinition, rewritten []schema.GroupVersionResource) ([]string, error) {
	var changed []string
	for i := range several {
		d := &several[i]
		if !slices.ContainsFunc(rewritten, func(gvr schema.GroupVersionResource) bool {
			return gvr.Resource == d.Spec.Names.Plural && gvr.Group == d.Spec.Group
		}) {
			continue
		}
		d.Status.StoredVersions = []string{storageVersion(d)}
		if _, err := r.extensions.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return changed, fmt.Errorf("customresourcedefinitions %s: %w", d.Name, err)
		}
		changed = append(changed, d.Name)
	}
	return changed, nil
}
