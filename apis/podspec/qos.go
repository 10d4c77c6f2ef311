package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/qos"
)

// QOSClass computes the QoS class from the requests and limits for cpu and
// memory. The pod-level resources decide, if they name a resource that is
// supported there; else those of all init containers and containers do. An
// empty `resources: {}` of the pod is thus the same as none, as it is in
// Kubernetes since its feature gate PodLevelResourcesFixKubeletQOSClass.
// A request that is missing does not count as equal to its limit: set defaults
// first.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	return qos.ComputePodQOS(&corev1.Pod{Spec: *spec})
}

// QOSClassOf returns the QoS class in the pod's status, which is immutable, or
// computes it if the status has none.
func QOSClassOf(pod *corev1.Pod) corev1.PodQOSClass {
	return qos.GetPodQOS(pod)
}
