// Package index has the indexes of the shared cache that several controllers need.
package index

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
)

// PodsByNode finds pods by the name of their node; "" finds unscheduled pods.
func PodsByNode() controller.Index {
	return controller.Index{Name: "spec.nodeName", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		return []string{obj.(*corev1.Pod).Spec.NodeName}
	}}
}

// PodsByClaim finds pods of a namespace by the names of their persistent volume
// claims, also those of generic ephemeral volumes. A claim of such a name may not
// belong to the pod: see ephemeral.VolumeIsForPod.
func PodsByClaim() controller.Index {
	return controller.Index{Name: "claims", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		pod := obj.(*corev1.Pod)
		var claims []string
		for i := range pod.Spec.Volumes {
			switch v := &pod.Spec.Volumes[i]; {
			case v.PersistentVolumeClaim != nil:
				claims = append(claims, v.PersistentVolumeClaim.ClaimName)
			case v.Ephemeral != nil:
				claims = append(claims, ephemeral.VolumeClaimName(pod, v))
			}
		}
		return claims
	}}
}

// ByController finds objects of a kind by the UID of their controller; NoController
// finds orphans.
func ByController(kind client.Object) controller.Index {
	return controller.Index{Name: "controller", Object: kind, Values: func(obj client.Object) []string {
		if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
			return []string{string(ref.UID)}
		}
		return []string{NoController}
	}}
}

// NoController is the value of ByController for objects without a controller.
const NoController = "none"

// ControlledPods returns the pods of a namespace whose controller has the UID, or that have
// none (NoController). They are the cache's own, and may be older than the client's writes.
// The cache needs the index ByController of pods.
func ControlledPods(ctx context.Context, c client.Reader, namespace, uid string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{ByController(&corev1.Pod{}).Name: uid},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	found := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		found[i] = &list.Items[i]
	}
	return found, nil
}

// SlicesByService finds EndpointSlices by the name of the service whose
// endpoints they hold.
func SlicesByService() controller.Index {
	return controller.Index{Name: "service", Object: &discoveryv1.EndpointSlice{}, Values: func(obj client.Object) []string {
		if name := obj.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{name}
		}
		return nil
	}}
}
