package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
)

// objects gives the hooks of other kinds access to a kind's objects.
type objects struct {
	main   *mainREST
	writes *genericregistry.Store
}

func (m *mainREST) objects() resource.Objects {
	writes := *m.Store
	writes.UpdateStrategy = serverStrategy{m.strategy}
	writes.BeginUpdate = nil
	return objects{main: m, writes: &writes}
}

// in returns the context of a request for the kind's own objects. From it the
// store reads the namespace, and the type that errors name.
func (o objects) in(ctx context.Context, namespace string) context.Context {
	ctx = request.WithNamespace(ctx, namespace)
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, APIGroup: o.main.kind.Hub.Group, APIVersion: o.main.kind.Hub.Version,
		Resource: o.main.kind.Name, Namespace: namespace,
	})
}

// Get implements resource.Objects.
func (o objects) Get(ctx context.Context, namespace, name string) (runtime.Object, error) {
	return o.main.Get(o.in(ctx, namespace), name, &metav1.GetOptions{})
}

// List implements resource.Objects.
func (o objects) List(ctx context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	return o.list(ctx, namespace, &internalListOptions{LabelSelector: selector})
}

// ListCached implements resource.Objects.
func (o objects) ListCached(ctx context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	return o.list(ctx, namespace, &internalListOptions{LabelSelector: selector, ResourceVersion: "0"})
}

func (o objects) list(ctx context.Context, namespace string, options *internalListOptions) ([]runtime.Object, error) {
	list, err := o.main.List(o.in(ctx, namespace), options)
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// Update implements resource.Objects.
func (o objects) Update(ctx context.Context, namespace, name string, dryRun bool, change func(obj runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	options := &metav1.UpdateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		return change(old.DeepCopyObject())
	})
	obj, _, err := o.writes.Update(o.in(ctx, namespace), name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, options)
	return obj, err
}

// Delete implements resource.Objects.
func (o objects) Delete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) error {
	_, _, err := o.main.Delete(o.in(ctx, namespace), name, rest.ValidateAllObjectFunc, options)
	return err
}

// Cached returns an object as the watch cache of its type has it, which may be a little older
// than etcd's, also while etcd is not available. It reads etcd if there is no watch cache yet.
// Errors are apierrors.
func (r *Registry) Cached(ctx context.Context, gr schema.GroupResource, namespace, name string) (runtime.Object, error) {
	found := r.byName[gr]
	if found == nil || found.main == nil {
		return nil, fmt.Errorf("get %s %s: there is no such resource", gr, name)
	}
	return found.main.Get(objects{main: found.main}.in(ctx, namespace), name, &metav1.GetOptions{ResourceVersion: "0"})
}

// DeleteIf requests the deletion of an object, if allowed returns nil for it as it is in
// etcd. Other errors than those of allowed are apierrors.
func (r *Registry) DeleteIf(ctx context.Context, gr schema.GroupResource, namespace, name string, allowed func(obj runtime.Object) error) error {
	found := r.byName[gr]
	if found == nil || found.main == nil {
		return fmt.Errorf("delete %s %s: there is no such resource", gr, name)
	}
	validate := func(_ context.Context, obj runtime.Object) error { return allowed(obj) }
	_, _, err := found.main.Delete(objects{main: found.main}.in(ctx, namespace), name, validate, &metav1.DeleteOptions{})
	return err
}
