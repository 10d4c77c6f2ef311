package endpointslice

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	library "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/internal/items"
)

// reconciler reads services, their pods, the pods' nodes and EndpointSlices. It is
// the only writer of the EndpointSlices with the label
// endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io.
type reconciler struct {
	client       client.Client
	events       record.EventRecorder
	maxEndpoints int32
	zones        zones
	triggers     *endpointsliceutil.TriggerTimeTracker
}

// Reconcile updates the slices of a service to its pods. The garbage collector
// deletes the slices of a service that was deleted.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	err := r.client.Get(ctx, req.NamespacedName, service)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(req.Namespace, req.Name)
		r.zones.forget(req.NamespacedName.String())
		return reconcile.Result{}, nil
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		// A user writes the EndpointSlices of such a service, or DNS resolves it.
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.reconcile(ctx, service)
}

func (r *reconciler) reconcile(ctx context.Context, service *corev1.Service) error {
	var pods corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.ValidatedSetSelector(service.Spec.Selector)}
	if err := r.client.List(ctx, &pods, client.InNamespace(service.Namespace), selector, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	existing, err := r.slices(ctx, service)
	if err != nil {
		return err
	}
	nodes := nodes{ctx, r.client}
	if hinted(service) {
		if err := r.zones.update(ctx, nodes); err != nil {
			return err
		}
	}
	w, err := newWriter(ctx, r.client, existing)
	if err != nil {
		return err
	}
	// The tracker is empty, because the client waits until the cache has its own
	// writes: there is nothing to track from one sync to the next.
	rules := library.NewReconciler(clientset{writer: w}, nodes, r.maxEndpoints, endpointsliceutil.NewEndpointSliceTracker(),
		r.zones.cache, r.events, manager, library.WithPreferSameTrafficDistributionEnabled(true))
	found := items.Pointers(pods.Items)
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, found)
	err = rules.Reconcile(klog.FromContext(ctx), service, found, existing, trigger)
	if refused := w.err(); refused != nil && outdated(refused) {
		return refused
	}
	if err == nil {
		return nil
	}
	r.events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
		"Error updating Endpoint Slices for Service %s/%s: %v", service.Namespace, service.Name, err)
	return err
}

// outdated reports whether a write failed because the slices have changed since
// they were read. It is retried without an event.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// slices returns the slices of this controller for the service that are not being
// deleted. While the service is, those that it does not own are left out: the garbage
// collector may have orphaned them, and the library would delete them.
func (r *reconciler) slices(ctx context.Context, service *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &list, client.InNamespace(service.Namespace), client.MatchingFields{index.SlicesByService().Name: service.Name})
	if err != nil {
		return nil, err
	}
	var own []*discoveryv1.EndpointSlice
	for i := range list.Items {
		if s := &list.Items[i]; managed(s) && s.DeletionTimestamp == nil && (service.DeletionTimestamp == nil || ownedBy(s, service)) {
			// The cache sets the kind, which the library compares with its own slice that
			// has no endpoints: it would write that slice in each sync.
			s.TypeMeta = metav1.TypeMeta{}
			own = append(own, s)
		}
	}
	return own, nil
}

func ownedBy(slice *discoveryv1.EndpointSlice, service *corev1.Service) bool {
	return slices.ContainsFunc(slice.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == service.UID })
}
