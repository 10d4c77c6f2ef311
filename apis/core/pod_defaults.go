package core

import (
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

func defaultPod(p *corev1.Pod) {
	spec := &p.Spec
	podspec.DropInitContainerAnnotations(p.Annotations)
	podspec.Default(spec)
	if *spec.TerminationGracePeriodSeconds < 0 {
		// One second: zero would delete the pod before its node has stopped it.
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	for at, c := range podspec.All(spec) {
		if at.List == podspec.EphemeralContainers {
			continue
		}
		requestWhatIsLimited(&c.Resources)
		if spec.HostNetwork {
			for i := range c.Ports {
				resource.FillEmpty(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	resource.Fill(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	alignPodIPs(&p.Status)
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			podspec.RoundUpToMilli(statuses[i].AllocatedResources)
			if statuses[i].Resources != nil {
				podspec.DefaultResources(statuses[i].Resources)
			}
		}
	}
	podspec.RoundUpToMilli(p.Status.AllocatedResources)
	if p.Status.Resources != nil {
		podspec.DefaultResources(p.Status.Resources)
	}
}

// alignPodIPs keeps podIP equal to the first of podIPs. If they differ, podIP
// counts: older nodes set only podIP.
func alignPodIPs(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

// requestWhatIsLimited sets missing requests to the limits.
func requestWhatIsLimited(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		addResource(&r.Requests, name, limit.DeepCopy())
	}
}

// addResource adds an amount unless the list has the resource.
func addResource(list *corev1.ResourceList, name corev1.ResourceName, amount quantity.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = amount
}
