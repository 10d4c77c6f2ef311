package storageversionmigrator

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/internal/storageversion"
)

// definitions reads the definitions of custom resources. It is the only writer of their
// condition StorageMigrating, and removes stored versions from their status.
type definitions struct {
	client client.Client
	server discovery.ServerResourcesInterface
}

// of returns the definition of a resource, or nil if it has none.
func (d definitions) of(ctx context.Context, resource metav1.GroupResource) (*apiextensionsv1.CustomResourceDefinition, error) {
	if resource.Group == "" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := d.client.Get(ctx, client.ObjectKey{Name: resource.Resource + "." + resource.Group}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	return definition, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition)
}

// begin marks a definition, if there is one, as being migrated in its present generation.
func (d definitions) begin(ctx context.Context, m *migration, now time.Time) error {
	return d.update(ctx, m.Spec.Resource, func(definition *apiextensionsv1.CustomResourceDefinition) {
		mark(definition, apiextensionsv1.ConditionTrue, "MigrationRunning", fmt.Sprintf("Migration %s is running", m.Name), now)
	})
}

// end records in a definition, if there is one, that a migration has ended.
func (d definitions) end(ctx context.Context, m *migration, success bool, now time.Time) error {
	return d.update(ctx, m.Spec.Resource, func(definition *apiextensionsv1.CustomResourceDefinition) { finish(definition, success, now) })
}

// update changes the status of a definition. It fails with a conflict if another client
// changes the definition meanwhile.
func (d definitions) update(ctx context.Context, resource metav1.GroupResource, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	definition, err := d.of(ctx, resource)
	if err != nil || definition == nil {
		return err
	}
	before, err := toUnstructured(definition)
	if err != nil {
		return err
	}
	change(definition)
	after, err := toUnstructured(definition)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(d.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

func toUnstructured(definition *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return object, nil
}

// knowsStorageVersion reports whether the API server stores the objects of a resource in
// the version that its definition, if there is one, has now.
func (d definitions) knowsStorageVersion(ctx context.Context, resource metav1.GroupResource) (bool, error) {
	definition, err := d.of(ctx, resource)
	return definition == nil || storageversion.IsInUse(d.server, definition), err
}

// finish marks a definition as migrated. If it has not changed since the migration began,
// all objects are stored in its storage version. A definition that is marked already stays
// as it is.
func finish(definition *apiextensionsv1.CustomResourceDefinition, success bool, now time.Time) {
	unchanged := false
	if i := slices.IndexFunc(definition.Status.Conditions, isMigrating); i >= 0 {
		c := definition.Status.Conditions[i]
		if c.Status != apiextensionsv1.ConditionTrue {
			return
		}
		unchanged = c.ObservedGeneration == definition.Generation
	}
	reason, text := "MigrationFailed", "The migration has failed"
	if success {
		reason, text = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
		if unchanged {
			text = "The migration has succeeded and the stored versions have been updated"
		}
	}
	mark(definition, apiextensionsv1.ConditionFalse, reason, text, now)
	if version := storageversion.Of(definition); success && unchanged && version != "" {
		definition.Status.StoredVersions = []string{version}
	}
}

func isMigrating(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
	return c.Type == apiextensionsv1.StorageMigrating
}

// mark sets the condition StorageMigrating of a definition.
func mark(definition *apiextensionsv1.CustomResourceDefinition, status apiextensionsv1.ConditionStatus, reason, text string, now time.Time) {
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: status, Reason: reason, Message: text,
		LastTransitionTime: metav1.NewTime(now), ObservedGeneration: definition.Generation,
	}
	if i := slices.IndexFunc(definition.Status.Conditions, isMigrating); i >= 0 {
		definition.Status.Conditions[i] = c
		return
	}
	definition.Status.Conditions = append(definition.Status.Conditions, c)
}
