package endpointslicemirroring

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

// reconciler reads services, Endpoints and EndpointSlices. It is the only writer
// of the EndpointSlices with the label
// endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io.
type reconciler struct {
	client client.Client
	events record.EventRecorder
	limit  int
}

// Reconcile updates the slices that mirror Endpoints.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	endpoints, err := get(ctx, r.client, req.NamespacedName, &corev1.Endpoints{})
	if err != nil {
		return reconcile.Result{}, err
	}
	service, err := get(ctx, r.client, req.NamespacedName, &corev1.Service{})
	if err != nil {
		return reconcile.Result{}, err
	}
	existing, err := r.slices(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	var wanted []*discoveryv1.EndpointSlice
	if endpoints != nil && endpoints.DeletionTimestamp == nil && mirrored(endpoints, service) {
		gvk, err := apiutil.GVKForObject(endpoints, r.client.Scheme())
		if err != nil {
			return reconcile.Result{}, err
		}
		image := mirror(endpoints, *metav1.NewControllerRef(endpoints, gvk), r.limit)
		r.reportSkipped(endpoints, image)
		wanted = image.slices
	}
	return reconcile.Result{}, r.write(ctx, compare(wanted, existing))
}

// reportSkipped records events about addresses that are not mirrored.
func (r *reconciler) reportSkipped(e *corev1.Endpoints, m image) {
	if m.invalid > 0 {
		r.events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", m.invalid)
	}
	if m.tooMany > 0 {
		r.events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", r.limit, m.invalid+m.tooMany)
	}
}

// write executes the plan.
func (r *reconciler) write(ctx context.Context, p plan) error {
	var errs []error
	for _, s := range p.create {
		if err := r.client.Create(ctx, s); err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			errs = append(errs, err)
		}
	}
	for _, s := range p.update {
		errs = append(errs, r.client.Update(ctx, s))
	}
	for _, s := range p.remove {
		errs = append(errs, client.IgnoreNotFound(r.client.Delete(ctx, s, client.Preconditions{UID: &s.UID})))
	}
	return errors.Join(errs...)
}

// slices returns the slices of this controller for the service that are not being
// deleted.
func (r *reconciler) slices(ctx context.Context, service client.ObjectKey) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(service.Namespace),
		client.MatchingFields{index.SlicesByService().Name: service.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var own []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if s := &list.Items[i]; managed(s) && s.DeletionTimestamp == nil {
			own = append(own, s)
		}
	}
	return own, nil
}

// get returns the object, or nil if it does not exist.
func get[T client.Object](ctx context.Context, reader client.Reader, key client.ObjectKey, obj T) (T, error) {
	err := reader.Get(ctx, key, obj, client.UnsafeDisableDeepCopy)
	if err != nil {
		var none T
		return none, client.IgnoreNotFound(err)
	}
	return obj, nil
}
