package resourcepoolstatusrequest

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/versions"
	"svc.dev/svc/internal/items"
)

// reconciler reads requests, slices, claims and rules. It is the only writer of the statuses of
// requests.
type reconciler struct {
	client client.Client
	// rules is nil if the API server serves no DeviceTaintRules.
	rules *versions.Client[resourcev1.DeviceTaintRule]
	now   func() time.Time
}

// Reconcile answers a request that has no status, and deletes one that is old.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	request := &resourcev1alpha3.ResourcePoolStatusRequest{}
	if err := r.client.Get(ctx, req.NamespacedName, request); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if request.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	left := expiry(request).Sub(r.now())
	switch {
	case left <= 0:
		return reconcile.Result{}, r.delete(ctx, request)
	case request.Status != nil:
		return reconcile.Result{RequeueAfter: left}, nil
	}
	slices, err := r.slices(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var claims resourcev1.ResourceClaimList
	if err := r.client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	answer, complete := answerTo(request, slices, items.Pointers(claims.Items), r.now())
	if wait := request.CreationTimestamp.Add(patience).Sub(r.now()); !complete && wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, retryPeriod)}, nil
	}
	err = r.write(ctx, request, answer)
	if apierrors.IsInvalid(err) { // A later attempt has the same answer.
		klog.FromContext(ctx).V(2).Info("Answering that the request has failed", "resourcePoolStatusRequest", klog.KObj(request), "reason", err.Error())
		err = r.write(ctx, request, failure(err, r.now()))
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("status of resource pool status request %s: %w", request.Name, err)
	}
	return reconcile.Result{}, nil
}

// slices returns all slices, whose devices have the taints of rules, too.
func (r *reconciler) slices(ctx context.Context) ([]*resourcev1.ResourceSlice, error) {
	var list resourcev1.ResourceSliceList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	slices := items.Pointers(list.Items)
	if r.rules == nil {
		return slices, nil
	}
	rules, err := r.rules.List(ctx)
	if err != nil {
		return nil, err
	}
	for i, slice := range slices {
		slices[i] = devicetaints.Apply(slice, rules)
	}
	return slices, nil
}

// write sets the status of a request.
func (r *reconciler) write(ctx context.Context, request *resourcev1alpha3.ResourcePoolStatusRequest, status *resourcev1alpha3.ResourcePoolStatusRequestStatus) error {
	request = request.DeepCopy()
	request.Status = status
	return r.client.Status().Update(ctx, request)
}

func (r *reconciler) delete(ctx context.Context, request *resourcev1alpha3.ResourcePoolStatusRequest) error {
	klog.FromContext(ctx).V(2).Info("Deleting resource pool status request", "resourcePoolStatusRequest", klog.KObj(request))
	if err := r.client.Delete(ctx, request, client.Preconditions{UID: &request.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete resource pool status request %s: %w", request.Name, err)
	}
	return nil
}
