package storageversion

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	discoveryclient "k8s.io/client-go/discovery"
)

// Of returns the version in which the objects of a definition are stored.
func Of(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// IsInUse reports whether the API server has learned of the definition's storage version:
// a change of that takes a moment.
func IsInUse(server discoveryclient.ServerResourcesInterface, d *apiextensionsv1.CustomResourceDefinition) bool {
	want := discovery.StorageVersionHash(d.Spec.Group, Of(d), d.Spec.Names.Kind)
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		list, err := server.ServerResourcesForGroupVersion(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}.String())
		return err == nil && slices.ContainsFunc(list.APIResources, func(resource metav1.APIResource) bool {
			return resource.Name == d.Spec.Names.Plural && resource.StorageVersionHash == want
		})
	}
	return false
}
