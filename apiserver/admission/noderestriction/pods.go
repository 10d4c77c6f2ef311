package noderestriction

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/podspec"
)

// mirror returns an error unless the pod is a mirror of a static pod of the node, is
// owned by it (KEP-1314), and refers to no objects of the API: a node would get access
// to them.
func (p *plugin) mirror(ctx context.Context, node string, pod *corev1.Pod) error {
	_, mirrors := pod.Annotations[corev1.MirrorPodAnnotationKey]
	switch {
	case !mirrors:
		return fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	case pod.Spec.NodeName != node:
		return fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if err := p.ownedBy(ctx, node, pod.OwnerReferences); err != nil {
		return err
	}
	for ref := range podspec.References(pod) {
		what := ref.Kind.Resource()
		if ref.Kind == podspec.ServiceAccount {
			what = "a service account"
		}
		return fmt.Errorf("node %q can not create pods that reference %s", node, what)
	}
	if len(pod.Spec.ResourceClaims) > 0 { // CVE-2025-4563
		return fmt.Errorf("node %q can not create pods that reference resourceclaims", node)
	}
	for i := range pod.Spec.Volumes {
		if what := referredByVolume(&pod.Spec.Volumes[i]); what != "" {
			return fmt.Errorf("node %q can not create pods that reference %s", node, what)
		}
	}
	return nil
}

// referredByVolume returns the objects that a volume refers to beside those of
// [podspec.References], or "".
func referredByVolume(v *corev1.Volume) string {
	switch {
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.Projected == nil:
		return ""
	}
	for _, source := range v.Projected.Sources {
		switch {
		case source.ServiceAccountToken != nil:
			return "serviceaccounts (via projected volumes)"
		case source.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case source.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}

// ownedBy returns an error unless the only owner is the node, as the controller.
func (p *plugin) ownedBy(ctx context.Context, node string, owners []metav1.OwnerReference) error {
	switch {
	case len(owners) == 0:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	case len(owners) > 1:
		return fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node)
	}
	owner := owners[0]
	switch {
	case owner.APIVersion != corev1.SchemeGroupVersion.String() || owner.Kind != "Node" || owner.Name != node:
		return fmt.Errorf("node %q can only create pods with an owner reference set to itself", node)
	case owner.Controller == nil || !*owner.Controller:
		return fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node)
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	stored, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case owner.UID != stored.UID:
		return fmt.Errorf("node %s UID mismatch: expected %s got %s", node, owner.UID, stored.UID)
	}
	return nil
}

// podSubresource refuses a subresource of pods that nodes do not change, whatever other rules
// give to nodes.
func podSubresource(name string) error {
	return fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", name)
}

// podChange returns an error unless the node may update or delete the pod: it updates only
// the status.
func podChange(node string, a admission.Attributes, old *corev1.Pod) error {
	changed, updated := a.GetObject().(*corev1.Pod)
	switch sub := a.GetSubresource(); {
	case sub == "" && updated:
		return fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.GetOperation(), node)
	case sub == "status" && !updated:
		return fmt.Errorf("unexpected operation %q", a.GetOperation())
	case sub != "" && sub != "status":
		return podSubresource(sub)
	case otherUID(a, old):
		return nil
	}
	switch own := old.Spec.NodeName == node; {
	case !updated && !own:
		return fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node)
	case !own:
		return fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	case !updated:
		return nil
	}
	if !maps.Equal(changed.Labels, old.Labels) {
		return fmt.Errorf("node %q cannot update labels through pod status", node)
	}
	if !equality.Semantic.DeepEqual(changed.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses) {
		return fmt.Errorf("node %q cannot update resource claim statuses", node)
	}
	if !equality.Semantic.DeepEqual(changed.Status.ExtendedResourceClaimStatus, old.Status.ExtendedResourceClaimStatus) {
		return fmt.Errorf("node %q cannot update extended resource claim status", node)
	}
	if !equality.Semantic.DeepEqual(changed.Status.NodeAllocatableResourceClaimStatuses, old.Status.NodeAllocatableResourceClaimStatuses) {
		return fmt.Errorf("node %q cannot update node allocatable resource claim statuses", node)
	}
	return nil
}

// otherUID reports whether a request is for a pod of another UID than old's.
func otherUID(a admission.Attributes, old *corev1.Pod) bool {
	if o, ok := a.GetOperationOptions().(*metav1.DeleteOptions); ok {
		return o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != old.UID
	}
	changed, ok := a.GetObject().(*corev1.Pod)
	return ok && changed.UID != old.UID
}
