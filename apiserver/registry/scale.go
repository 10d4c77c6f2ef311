package registry

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/patcherror"
)

// scaleREST is the scale subresource.
type scaleREST struct {
	rest.TableConvertor
	main *mainREST
}

var (
	_ rest.Patcher                  = &scaleREST{}
	_ rest.GroupVersionKindProvider = &scaleREST{}
	_ rest.TableConvertor           = &scaleREST{}
)

// New implements rest.Storage.
func (s *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy implements rest.Storage; the store is the main resource's.
func (s *scaleREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (s *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// scaleColumns are the columns of the table view of every kind's scale.
var scaleColumns = []resource.KindColumn{
	{Name: "Name", Format: "name", Value: func(obj runtime.Object) any { return obj.(*autoscalingv1.Scale).Name }},
	{Name: "Desired", Type: "integer", Description: "Number of replicas that are wanted.",
		Value: func(obj runtime.Object) any { return int64(obj.(*autoscalingv1.Scale).Spec.Replicas) }},
	{Name: "Available", Type: "integer", Description: "Number of replicas that exist.",
		Value: func(obj runtime.Object) any { return int64(obj.(*autoscalingv1.Scale).Status.Replicas) }},
	{Name: "Age", Value: func(obj runtime.Object) any { return obj.(*autoscalingv1.Scale).CreationTimestamp }},
}

// Get implements rest.Getter.
func (s *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := s.main.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return s.main.scaleOf(obj)
}

// Update implements rest.Updater. It writes the object through the main
// resource's own update, so that its validation and hooks hold. It never creates.
func (s *scaleREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	change := &scaleChange{main: s.main, name: name, wanted: patcherror.Info(info), handler: s.main.scaleHandler(ctx)}
	obj, _, err := s.main.Update(ctx, name, change,
		func(ctx context.Context, obj runtime.Object) error {
			scale, err := s.main.scaleOf(obj)
			if err != nil || create == nil {
				return err
			}
			return create(ctx, scale)
		},
		func(ctx context.Context, obj, old runtime.Object) error {
			scale, err := s.main.scaleOf(obj)
			if err != nil {
				return err
			}
			before, err := s.main.scaleOf(old)
			if err != nil || update == nil {
				return err
			}
			return update(ctx, scale, before)
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := s.main.scaleOf(obj)
	return scale, false, err
}

// scaleOf returns an object's scale.
func (m *mainREST) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	scale, err := m.kind.Scale.Get(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot read the scale of %s: %v", metaOf(obj).GetName(), err))
	}
	return scale, nil
}

// scaleHandler translates the ownership of replicas between object and scale.
func (m *mainREST) scaleHandler(ctx context.Context) func(entries []metav1.ManagedFieldsEntry) *managedfields.ScaleHandler {
	gv := m.kind.Hub.GroupVersion()
	if info, ok := request.RequestInfoFrom(ctx); ok && info.APIVersion != "" {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	}
	paths := managedfields.ResourcePathMappings{}
	for _, gvk := range m.kind.GVKs() {
		paths[gvk.GroupVersion().String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return func(entries []metav1.ManagedFieldsEntry) *managedfields.ScaleHandler {
		return managedfields.NewScaleHandler(entries, gv, paths)
	}
}

// scaleChange applies an update of a scale to its object.
type scaleChange struct {
	main    *mainREST
	name    string
	wanted  rest.UpdatedObjectInfo
	handler func(entries []metav1.ManagedFieldsEntry) *managedfields.ScaleHandler
}

// Preconditions implements rest.UpdatedObjectInfo.
func (c *scaleChange) Preconditions() *metav1.Preconditions { return c.wanted.Preconditions() }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (c *scaleChange) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	if metaOf(old).GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(c.main.kind.Resource(), c.name)
	}
	obj := old.DeepCopyObject()
	handler := c.handler(metaOf(obj).GetManagedFields())
	before, err := c.main.scaleOf(obj)
	if err != nil {
		return nil, err
	}
	if before.ManagedFields, err = handler.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := c.wanted.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to a scale update: %T; send an autoscaling/v1 Scale", updated))
	}
	if errs := c.validate(scale); len(errs) > 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), c.name, errs)
	}
	at := metaOf(obj)
	if scale.UID != "" { // a patch has no preconditions
		if err := c.main.checkPreconditions(obj, &metav1.Preconditions{UID: &scale.UID}); err != nil {
			return nil, err
		}
	}
	if scale.ResourceVersion != "" && scale.ResourceVersion != at.GetResourceVersion() {
		return nil, apierrors.NewConflict(c.main.kind.Resource(), c.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	c.main.kind.Scale.Set(obj, scale.Spec.Replicas)
	managed, err := handler.ToParent(scale.ManagedFields)
	if err != nil {
		return nil, err
	}
	at.SetManagedFields(managed)
	return obj, nil
}

func (c *scaleChange) validate(scale *autoscalingv1.Scale) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(scale, c.main.kind.Namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas), field.NewPath("spec", "replicas"))...)
}
