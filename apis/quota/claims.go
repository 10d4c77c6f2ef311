package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

const countClaims corev1.ResourceName = "count/persistentvolumeclaims"

// ofStorageClass joins a storage class and the resource that a quota limits for it:
// gold.storageclass.storage.k8s.io/requests.storage.
const ofStorageClass = ".storageclass.storage.k8s.io/"

func claims() *evaluator {
	measured := []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	return &evaluator{
		resource: "persistentvolumeclaims",
		measures: func(name corev1.ResourceName) bool {
			_, ofClass, has := strings.Cut(string(name), ofStorageClass)
			return name == countClaims || slices.Contains(measured, name) || has && slices.Contains(measured, corev1.ResourceName(ofClass))
		},
		usage: func(item runtime.Object) (corev1.ResourceList, error) {
			claim, ok := item.(*corev1.PersistentVolumeClaim)
			if !ok {
				return nil, kindError("persistentvolumeclaims", item)
			}
			return claimUsage(claim), nil
		},
		inScope: claimInScope,
		handles: handlesClaim,
	}
}

func claimUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	usage := corev1.ResourceList{countClaims: count(1), corev1.ResourcePersistentVolumeClaims: count(1)}
	if storage, ok := storage(claim); ok {
		usage[corev1.ResourceRequestsStorage] = storage
	}
	if class := volume.GetPersistentVolumeClaimClass(claim); class != "" {
		for _, name := range []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage} {
			if amount, ok := usage[name]; ok {
				usage[corev1.ResourceName(class+ofStorageClass)+name] = amount
			}
		}
	}
	return usage
}

// storage returns the storage that a claim uses, in whole bytes: its request, or
// the allocated size if the request was lowered (KEP-1790).
func storage(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	asked, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return resource.Quantity{}, false
	}
	if given := claim.Status.AllocatedResources[corev1.ResourceStorage]; given.Cmp(asked) > 0 {
		asked = given
	}
	asked = asked.DeepCopy()
	asked.RoundUp(0)
	return asked, true
}

// claimInScope reports whether a quota with this scope limits a claim.
func claimInScope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	claim, ok := item.(*corev1.PersistentVolumeClaim)
	if !ok {
		return false, kindError("persistentvolumeclaims", item)
	}
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false, nil
	}
	return named(s, attributesClasses(claim)...)
}

// attributesClasses returns the claim's VolumeAttributesClasses: the desired one,
// the current one, and the target of a modification in progress.
func attributesClasses(claim *corev1.PersistentVolumeClaim) []string {
	names := []string{ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")}
	if m := claim.Status.ModifyVolumeStatus; m != nil {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

func handlesClaim(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		return a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	case "status":
		claim, isClaim := a.GetObject().(*corev1.PersistentVolumeClaim)
		old, wasClaim := a.GetOldObject().(*corev1.PersistentVolumeClaim)
		return isClaim && wasClaim && (claim.Status.AllocatedResources.Storage().Cmp(*old.Status.AllocatedResources.Storage()) != 0 ||
			!slices.Equal(attributesClasses(claim), attributesClasses(old)))
	}
	return false
}
