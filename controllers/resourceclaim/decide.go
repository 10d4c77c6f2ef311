package resourceclaim

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"svc.dev/svc/controllers/pods"
)

// isDone reports whether a pod will not run any more: it has ended, or was deleted before
// it was bound to a node.
func isDone(pod *corev1.Pod) bool {
	return pods.IsTerminal(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// maxGenerateName leaves space for a hyphen and five random characters in a name of 63.
const maxGenerateName = 57

// fromTemplate returns the claim that a template has for a pod, which owns it.
func fromTemplate(pod *corev1.Pod, podClaim string, template *resourcev1.ResourceClaimTemplate) *resourcev1.ResourceClaim {
	annotations := maps.Clone(template.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[resourcev1.PodResourceClaimAnnotation] = podClaim
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: generateName(pod.Name, podClaim), Labels: template.Spec.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
}

// generateName returns what the names of a pod's claims begin with. If it is too long, both
// parts are cut, in proportion to their lengths.
func generateName(pod, podClaim string) string {
	whole := pod + "-" + podClaim + "-"
	if len(whole) <= maxGenerateName {
		return whole
	}
	return pod[:len(pod)*maxGenerateName/len(whole)] + "-" + podClaim[:len(podClaim)*maxGenerateName/len(whole)]
}

// madeFor returns the claim that was made from a template for a pod's claim, or nil: it
// may exist before the pod's status names it.
func madeFor(podClaim string, owned []resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	for i := range owned {
		if owned[i].Annotations[resourcev1.PodResourceClaimAnnotation] == podClaim {
			return &owned[i]
		}
	}
	return nil
}

// needsReservation reports whether a pod that was bound to its node without the scheduler
// must still be entered as a consumer of an allocated claim.
func needsReservation(pod *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	return claim.Status.Allocation != nil && claim.DeletionTimestamp == nil &&
		!resourceclaim.IsReservedForPod(pod, claim, false) && resourceclaim.CanBeReserved(claim)
}

// action is what to do with a claim: any of it, in this order.
type action struct {
	// release ends the reservations of all consumers but those in remaining.
	release   bool
	remaining []resourcev1.ResourceClaimConsumerReference
	// deallocate frees the devices: the next consumer may need others, on another node.
	deallocate bool
	// removeFinalizer removes what protects an allocated claim from deletion.
	removeFinalizer bool
}

// decide returns what to do with a claim, given those of its consumers that still need it.
// An allocated claim that never had a consumer stays so until it is deleted: its consumer
// may be entered later.
func decide(claim *resourcev1.ResourceClaim, remaining []resourcev1.ResourceClaimConsumerReference) action {
	protected := controllerutil.ContainsFinalizer(claim, resourcev1.Finalizer)
	unused := len(remaining) == 0
	switch {
	case len(remaining) < len(claim.Status.ReservedFor):
		a := action{release: true, remaining: remaining, deallocate: unused && protected && claim.Status.Allocation != nil}
		a.removeFinalizer = protected && (a.deallocate || claim.Status.Allocation == nil)
		return a
	case protected && claim.DeletionTimestamp != nil && unused:
		return action{deallocate: claim.Status.Allocation != nil, removeFinalizer: true}
	default:
		return action{}
	}
}

// isUnneeded reports whether a claim without consumers that was made for a pod can be
// deleted before the garbage collector does so: pod is the present one of its name.
func isUnneeded(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return pod.UID != owner(claim).UID || isDone(pod)
}

// owner returns the reference to the pod that owns a claim, or the zero value.
func owner(claim *resourcev1.ResourceClaim) metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return *ref
	}
	return metav1.OwnerReference{}
}
