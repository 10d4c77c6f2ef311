package rewrite

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/storageversion"
)

// Several returns the definitions whose custom resources may be stored in several
// versions and which the API server stores in their present one.
func (r *Rewriter) Several(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list, err := r.extensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return len(d.Status.StoredVersions) < 2 || !storageversion.IsInUse(r.discovery, &d)
	}), nil
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
		d.Status.StoredVersions = []string{storageversion.Of(d)}
		if _, err := r.extensions.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return changed, fmt.Errorf("customresourcedefinitions %s: %w", d.Name, err)
		}
		changed = append(changed, d.Name)
	}
	return changed, nil
}
