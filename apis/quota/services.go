package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

const countServices corev1.ResourceName = "count/services"

func services() *evaluator {
	measured := []corev1.ResourceName{countServices, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}
	return &evaluator{
		resource: "services",
		measures: func(name corev1.ResourceName) bool { return slices.Contains(measured, name) },
		usage: func(item runtime.Object) (corev1.ResourceList, error) {
			s, ok := item.(*corev1.Service)
			if !ok {
				return nil, kindError("services", item)
			}
			return corev1.ResourceList{
				countServices:                        count(1),
				corev1.ResourceServices:              count(1),
				corev1.ResourceServicesNodePorts:     count(nodePorts(s)),
				corev1.ResourceServicesLoadBalancers: count(loadBalancers(s)),
			}, nil
		},
		handles: func(a admission.Attributes) bool {
			// The type of a service can change.
			return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
		},
	}
}

func loadBalancers(s *corev1.Service) int {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return 1
	}
	return 0
}

// nodePorts is how many node ports a service has or is about to get.
func nodePorts(s *corev1.Service) int {
	switch {
	case s.Spec.Type == corev1.ServiceTypeNodePort,
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true):
		return len(s.Spec.Ports)
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer:
		n := 0
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				n++
			}
		}
		return n
	}
	return 0
}
