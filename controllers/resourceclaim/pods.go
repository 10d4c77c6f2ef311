package resourceclaim

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// podReconciler reads pods, claims and templates. It creates the claims of pods, and writes
// their names into the pods' statuses. It reserves claims for pods that have a node.
type podReconciler struct {
	client   client.Client
	recorder record.EventRecorder
}

// Reconcile makes the claims of a pod that do not exist.
func (r *podReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil || pods.IsTerminal(pod) {
		return reconcile.Result{}, nil
	}
	before := pod.DeepCopy()
	var errs []error
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		switch name, err := r.ensure(ctx, pod, podClaim); {
		case pods.NamespaceTerminates(err):
			return reconcile.Result{}, nil
		case err != nil:
			err = fmt.Errorf("PodResourceClaim %s: %w", podClaim.Name, err)
			r.recorder.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", err.Error())
			errs = append(errs, err)
		case name != "":
			setStatus(pod, podClaim.Name, name)
		}
	}
	if len(pod.Status.ResourceClaimStatuses) > 0 && !resourceclaim.PodStatusEqual(before.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses) {
		if err := r.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	if pod.Spec.NodeName != "" {
		errs = append(errs, r.reserve(ctx, pod))
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, fmt.Errorf("pod %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// setStatus enters the name of a claim.
func setStatus(pod *corev1.Pod, podClaim, name string) {
	for i := range pod.Status.ResourceClaimStatuses {
		if s := &pod.Status.ResourceClaimStatuses[i]; s.Name == podClaim {
			s.ResourceClaimName = &name
			return
		}
	}
	pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: podClaim, ResourceClaimName: &name})
}

// ensure makes a claim from its template if it does not exist, and returns its name. For
// other claims the name is empty.
func (r *podReconciler) ensure(ctx context.Context, pod *corev1.Pod, podClaim *corev1.PodResourceClaim) (string, error) {
	if podClaim.ResourceClaimTemplateName == nil {
		return "", nil
	}
	name, _, err := resourceclaim.Name(pod, podClaim)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
	case err != nil:
		return "", err
	case name == nil: // it needs none
		return "", nil
	default:
		// The claim of the status may have been deleted since, and another may have its name.
		claim := &resourcev1.ResourceClaim{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: *name}, claim, client.UnsafeDisableDeepCopy)
		if err == nil && resourceclaim.IsForPod(pod, claim, false) == nil {
			return *name, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
	}
	var owned resourcev1.ResourceClaimList
	by := client.MatchingFields{index.ByController(&resourcev1.ResourceClaim{}).Name: string(pod.UID)}
	if err := r.client.List(ctx, &owned, client.InNamespace(pod.Namespace), by, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	if claim := madeFor(podClaim.Name, owned.Items); claim != nil {
		return claim.Name, nil
	}
	template := &resourcev1.ResourceClaimTemplate{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: *podClaim.ResourceClaimTemplateName}, template, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("resource claim template %q: %w", *podClaim.ResourceClaimTemplateName, err)
	}
	claim := fromTemplate(pod, podClaim.Name, template)
	if err := r.client.Create(ctx, claim); err != nil {
		return "", fmt.Errorf("create ResourceClaim: %w", err)
	}
	return claim.Name, nil
}

// reserve enters a pod that has a node as a consumer of its allocated claims. The
// scheduler does so for the pods that it binds.
func (r *podReconciler) reserve(ctx context.Context, pod *corev1.Pod) error {
	for i := range pod.Spec.ResourceClaims {
		name, mustCheckOwner, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue // it is not made yet, or none is needed
		}
		claim := &resourcev1.ResourceClaim{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: *name}, claim); err != nil {
			if apierrors.IsNotFound(err) {
				continue // the pod waits for it
			}
			return err
		}
		if mustCheckOwner {
			if err := resourceclaim.IsForPod(pod, claim, false); err != nil {
				return err
			}
		}
		if !needsReservation(pod, claim) {
			continue
		}
		before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, devices.Consumer(pod))
		if err := r.client.Status().Patch(ctx, claim, before); err != nil {
			return fmt.Errorf("reserve claim %s: %w", claim.Name, err)
		}
	}
	return nil
}
