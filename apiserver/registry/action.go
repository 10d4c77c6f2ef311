package registry

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
)

// actionREST serves an action: a subresource that is created, such as an eviction.
type actionREST struct {
	action resource.Action
	// bodies are the versions of the body; discovery names the first.
	bodies []schema.GroupVersionKind
	parent schema.GroupResource
	env    *resource.Env
}

var (
	_ rest.NamedCreater                   = &actionREST{}
	_ rest.GroupVersionKindProvider       = &actionREST{}
	_ rest.GroupVersionAcceptor           = &actionREST{}
	_ rest.SubresourceObjectMetaPreserver = &actionREST{}
)

func newAction(action resource.Action, main *mainREST, scheme *runtime.Scheme, env *resource.Env) (*actionREST, error) {
	gvks, _, err := scheme.ObjectKinds(action.Input())
	if err != nil {
		return nil, fmt.Errorf("action %s: %w", action.Name, err)
	}
	bodies := []schema.GroupVersionKind{gvks[0]}
	for _, v := range action.InputVersions {
		bodies = append(bodies, v.GVK)
	}
	return &actionREST{action: action, bodies: bodies, parent: main.kind.Resource(), env: env}, nil
}

// WithBodies returns the storage of a subresource with those versions of its body that has
// selects. It returns nil if the body has none of them, and s itself for other storage.
func WithBodies(s rest.Storage, has func(gvk schema.GroupVersionKind) bool) rest.Storage {
	a, ok := s.(*actionREST)
	if !ok {
		return s
	}
	only := *a
	only.bodies = nil
	for _, gvk := range a.bodies {
		if has(gvk) {
			only.bodies = append(only.bodies, gvk)
		}
	}
	if only.bodies == nil {
		return nil
	}
	return &only
}

// New implements rest.Storage.
func (a *actionREST) New() runtime.Object { return a.action.Input() }

// Destroy implements rest.Storage.
func (a *actionREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (a *actionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return a.bodies[0]
}

// AcceptsGroupVersion implements rest.GroupVersionAcceptor.
func (a *actionREST) AcceptsGroupVersion(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(a.bodies, func(gvk schema.GroupVersionKind) bool { return gvk.GroupVersion() == gv })
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// rest.SubresourceObjectMetaPreserver: the UID and resourceVersion of a posted
// object are preconditions of the action.
func (a *actionREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater.
func (a *actionREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	posted := metaOf(obj)
	namespace := request.NamespaceValue(ctx)
	if posted.GetName() != "" && posted.GetName() != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", posted.GetName(), name))
	}
	if posted.GetNamespace() != "" && posted.GetNamespace() != namespace {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the URL (%s)", posted.GetNamespace(), namespace))
	}
	posted.SetName(name)
	posted.SetNamespace(namespace)
	req := resource.ActionRequest{Namespace: namespace, Name: name, Input: obj, DryRun: isDryRun(options.DryRun)}
	if a.action.Prepare != nil {
		if err := a.action.Prepare(ctx, a.env, req); err != nil {
			return nil, err
		}
	}
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return a.action.Run(ctx, a.env, req)
}
