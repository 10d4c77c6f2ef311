package endpoints

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reads services with a selector and their pods. It is the only writer
// of their Endpoints. It deletes the Endpoints of every service that was deleted.
type reconciler struct {
	client   client.Client
	live     client.Reader
	events   record.EventRecorder
	triggers *endpointsliceutil.TriggerTimeTracker
}

// Reconcile updates the Endpoints of a service to its pods.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	err := r.client.Get(ctx, req.NamespacedName, service)
	if apierrors.IsNotFound(err) {
		r.triggers.DeleteService(req.Namespace, req.Name)
		return reconcile.Result{}, r.delete(ctx, req)
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		// A user writes the Endpoints of such a service, or DNS resolves it.
		return reconcile.Result{}, err
	}
	var pods corev1.PodList
	selector := client.MatchingLabelsSelector{Selector: labels.ValidatedSetSelector(service.Spec.Selector)}
	if err := r.client.List(ctx, &pods, client.InNamespace(service.Namespace), selector, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	current := &corev1.Endpoints{}
	if err := r.client.Get(ctx, req.NamespacedName, current); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	found := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		found[i] = &pods.Items[i]
	}
	trigger := r.triggers.ComputeEndpointLastChangeTriggerTime(service.Namespace, service, found)
	wanted := desired(service, found, current)
	if current.ResourceVersion != "" && same(wanted, current) {
		return reconcile.Result{}, nil
	}
	delete(wanted.Annotations, corev1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		wanted.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	return reconcile.Result{}, r.write(ctx, service, wanted)
}

// write creates or updates Endpoints.
func (r *reconciler) write(ctx context.Context, service *corev1.Service, e *corev1.Endpoints) error {
	// The client overwrites e, even if the request fails.
	about := e.DeepCopy()
	reason, what := "FailedToUpdateEndpoint", "update endpoint"
	var err error
	if e.ResourceVersion != "" {
		err = r.client.Update(ctx, e)
	} else {
		reason, what = "FailedToCreateEndpoint", "create endpoint for service"
		err = r.client.Create(ctx, e)
	}
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return err
	}
	r.events.Eventf(about, corev1.EventTypeWarning, reason, "Failed to %s %s/%s: %v", what, service.Namespace, service.Name, err)
	return fmt.Errorf("endpoints of service %s/%s: %w", service.Namespace, service.Name, err)
}

// delete deletes the Endpoints of a service that was deleted, unless they are the
// lock of a leader election.
func (r *reconciler) delete(ctx context.Context, req reconcile.Request) error {
	e := &corev1.Endpoints{}
	if err := r.client.Get(ctx, req.NamespacedName, e); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; lock || e.DeletionTimestamp != nil {
		return nil
	}
	// The cache may have the Endpoints of a new service before the service.
	if err := r.live.Get(ctx, req.NamespacedName, &corev1.Service{}); !apierrors.IsNotFound(err) {
		return err
	}
	err := r.client.Delete(ctx, e, client.Preconditions{UID: &e.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete endpoints %s: %w", req.NamespacedName, err)
	}
	return nil
}
