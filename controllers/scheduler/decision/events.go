package decision

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"svc.dev/svc/apis/podspec"
)

// Event is a set of changes in the cluster that can make an unschedulable pod
// schedulable.
type Event uint32

// The events. Each filter lists those after which it may accept a node.
const (
	NodeAdded        Event = 1 << iota
	NodeRemoved            // spreading has a domain less
	NodeLabels             // labels changed
	NodeTaints             // taints or spec.unschedulable changed
	NodeAllocatable        // allocatable resources changed
	PodBound               // a pod got a node
	PodGone                // a pod that has a node was deleted, or ended
	PodLabels              // labels of a pod that has a node changed
	PodShrunk              // a pod that has a node needs less than before
	ClaimChanged           // a persistent volume claim was created or changed
	VolumeChanged          // a persistent volume was created or changed
	ClassChanged           // a storage class, a CSI driver or its capacity was created or changed
	CSINodeChanged         // a CSI node was created or changed
	NamespaceChanged       // a namespace was created, or its labels changed
	DevicesChanged         // a resource claim, device class or resource slice was created or changed
	AttachmentGone         // the attachment of a volume to a node was deleted
	NodeFeatures           // the features that a node declares changed
	OwnClassChanged        // a device class that offers, or offered, a resource which the pod requests was created, changed or deleted
	OwnClaimChanged        // a claim of the pod itself, or the volume of one, was created, changed or deleted
	OwnGroupChanged        // the pod's group was created or changed, or another pod of it got a node
)

// NodeEvents returns the events of a change of a node; before is nil for a new node,
// after for a deleted one. It is 0 for a change without effect on pods, such as a
// heartbeat.
func NodeEvents(before, after *corev1.Node) Event {
	switch {
	case before == nil:
		return NodeAdded
	case after == nil:
		return NodeRemoved
	}
	var e Event
	if !maps.Equal(before.Labels, after.Labels) {
		e |= NodeLabels
	}
	if before.Spec.Unschedulable != after.Spec.Unschedulable || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		e |= NodeTaints
	}
	if !equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) {
		e |= NodeAllocatable
	}
	if !slices.Equal(before.Status.DeclaredFeatures, after.Status.DeclaredFeatures) {
		e |= NodeFeatures
	}
	return e
}

// PodEvents returns the events of a change of a pod; before is nil for a new pod,
// after for a deleted one. It is 0 for a change without effect on other pods, such as
// any change of a pod without a node.
func PodEvents(before, after *corev1.Pod) Event {
	was, is := before != nil && occupies(before), after != nil && occupies(after)
	switch {
	case !was && !is:
		return 0
	case !was:
		return PodBound
	case !is:
		return PodGone
	}
	var e Event
	// A pod that is being deleted does not count for spreading.
	if !maps.Equal(before.Labels, after.Labels) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		e |= PodLabels
	}
	if mayHaveShrunk(before, after) {
		e |= PodShrunk
	}
	return e
}

// occupies reports whether a pod uses resources of a node.
func occupies(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !podspec.IsTerminal(pod.Status.Phase)
}

// mayHaveShrunk reports whether a pod that was resized in place needs less of
// something.
func mayHaveShrunk(before, after *corev1.Pod) bool {
	if slices.EqualFunc(before.Spec.Containers, after.Spec.Containers, sameRequests) &&
		slices.EqualFunc(before.Spec.InitContainers, after.Spec.InitContainers, sameRequests) &&
		equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) &&
		equality.Semantic.DeepEqual(before.Status.ContainerStatuses, after.Status.ContainerStatuses) {
		return false
	}
	was, is := newRequirements(before), newRequirements(after)
	return is.resources.lessThanIn(&was.resources)
}

func sameRequests(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(a.Resources.Requests, b.Resources.Requests)
}
