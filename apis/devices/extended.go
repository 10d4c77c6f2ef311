package devices

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

// ExtendedResourcesGate is the feature gate of device classes that offer extended resources
// (KEP-5004): the scheduler makes a resource claim for a pod that requests them.
const ExtendedResourcesGate = "DRAExtendedResource"

// IsExtendedResource reports whether device classes can offer a resource: it is an extended
// resource, or the one that each class offers under its own name.
func IsExtendedResource(name corev1.ResourceName) bool {
	return podspec.IsExtendedResource(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
}

// ClassOf returns the class that offers an extended resource, nil if there is none. Of several
// it is the newest, so that a class can replace another, and of those made in the same second
// the first by name.
func ClassOf(name corev1.ResourceName, classes iter.Seq[*resourcev1.DeviceClass]) *resourcev1.DeviceClass {
	if !IsExtendedResource(name) {
		return nil
	}
	var found *resourcev1.DeviceClass
	for class := range classes {
		if Offers(class, name) && (found == nil || replaces(class, found)) {
			found = class
		}
	}
	return found
}

// Offers reports whether a class offers an extended resource, unless another one takes its place.
func Offers(class *resourcev1.DeviceClass, name corev1.ResourceName) bool {
	return string(name) == resourcev1.ResourceDeviceClassPrefix+class.Name || string(name) == ptr.Deref(class.Spec.ExtendedResourceName, "")
}

func replaces(class, other *resourcev1.DeviceClass) bool {
	if class.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return class.Name < other.Name
	}
	return other.CreationTimestamp.Before(&class.CreationTimestamp)
}

// ExtendedClaimOf returns the UID of the pod for whose extended resources a scheduler has made
// the claim; empty for other claims.
func ExtendedClaimOf(claim *resourcev1.ResourceClaim) types.UID {
	owner := metav1.GetControllerOfNoCopy(claim)
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return ""
	}
	return owner.UID
}
