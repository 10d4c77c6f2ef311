package resourcequota

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/internal/items"
)

// listClaims returns the list of resource claims of their evaluator.
func (r *reconciler) listClaims(ctx context.Context) generic.ListFuncByNamespace {
	return func(namespace string) ([]runtime.Object, error) {
		claims := &resourcev1.ResourceClaimList{}
		err := r.client.List(ctx, claims, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
		return objects[*resourcev1.ResourceClaim](claims.Items), err
	}
}

// devices returns what the evaluator of resource claims reads, nil if their devices do not
// count as extended resources.
func (r *reconciler) devices(ctx context.Context) quota.Extended {
	if !r.extended {
		return nil
	}
	return extended{ctx, r.client}
}

// extended implements quota.Extended.
type extended struct {
	ctx    context.Context
	client client.Reader
}

// Classes implements quota.Extended.
func (e extended) Classes() ([]*resourcev1.DeviceClass, error) {
	var list resourcev1.DeviceClassList
	err := e.client.List(e.ctx, &list, client.UnsafeDisableDeepCopy)
	return items.Pointers(list.Items), err
}

// Pod implements quota.Extended.
func (e extended) Pod(namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, e.client.Get(e.ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod, client.UnsafeDisableDeepCopy)
}

// Claims implements quota.Extended.
func (e extended) Claims(namespace string) ([]*resourcev1.ResourceClaim, error) {
	var list resourcev1.ResourceClaimList
	err := e.client.List(e.ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	return items.Pointers(list.Items), err
}
