package endpoints

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	library "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/controllers/endpoints/internal/subsets"
)

// addresses returns the addresses of the service's pods: each pod's address in the
// service's first IP family, with each of the service's ports that the pod has.
func addresses(service *corev1.Service, pods []*corev1.Pod) []subsets.Address {
	var all []subsets.Address
	for _, pod := range pods {
		if !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		ip := addressOf(service, pod)
		if ip == "" {
			continue
		}
		a := subsets.Address{
			EndpointAddress: corev1.EndpointAddress{
				IP:        ip,
				NodeName:  &pod.Spec.NodeName,
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			},
			Ready: service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod),
		}
		if endpointsliceutil.ShouldSetHostname(pod, service) {
			a.Hostname = pod.Spec.Hostname
		}
		if len(service.Spec.Ports) == 0 && service.Spec.ClusterIP == corev1.ClusterIPNone {
			all = append(all, a)
		}
		for i := range service.Spec.Ports {
			p := &service.Spec.Ports[i]
			// A pod that lacks the named port still has the others.
			if number, err := library.FindPort(pod, p); err == nil {
				a.Port = &corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol}
				all = append(all, a)
			}
		}
	}
	return all
}

// addressOf returns the pod's address in the service's first IP family, or "".
func addressOf(service *corev1.Service, pod *corev1.Pod) string {
	want6 := netutils.IsIPv6String(service.Spec.ClusterIP)
	if len(service.Spec.IPFamilies) > 0 {
		want6 = service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	}
	for _, ip := range pod.Status.PodIPs {
		// Node agents may write another form than the canonical one.
		if parsed := netutils.ParseIPSloppy(ip.IP); parsed != nil && netutils.IsIPv6(parsed) == want6 {
			return parsed.String()
		}
	}
	return ""
}

// capacity is the maximum number of addresses in Endpoints.
const capacity = 1000

// truncate removes addresses above the capacity: first those that are not ready,
// and the same share of every subset. It reports whether it has removed any.
func truncate(all []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, notReady := 0, 0
	for _, s := range all {
		ready += len(s.Addresses)
		notReady += len(s.NotReadyAddresses)
	}
	if ready+notReady <= capacity {
		return all, false
	}
	var left []corev1.EndpointSubset
	room := capacity - min(ready, capacity)
	if ready > capacity {
		room = capacity
	}
	free := room
	for _, s := range all {
		if ready > capacity {
			s.Addresses, s.NotReadyAddresses = share(s.Addresses, ready, room, &free), nil
		} else {
			s.NotReadyAddresses = share(s.NotReadyAddresses, notReady, room, &free)
		}
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			left = append(left, s)
		}
	}
	return left, true
}

// share returns the first of a subset's addresses: the subset's share of room,
// rounded up, but at most as many as are still free.
func share(addresses []corev1.EndpointAddress, all, room int, free *int) []corev1.EndpointAddress {
	n := min((len(addresses)*room+all-1)/all, *free)
	*free -= n
	return addresses[:n]
}

// same reports whether a and b need no update: they are equal except for the time
// of the last change.
func same(a, b *corev1.Endpoints) bool {
	return equality.Semantic.DeepEqual(a.Subsets, b.Subsets) && maps.Equal(a.Labels, b.Labels) &&
		a.Annotations[corev1.EndpointsOverCapacity] == b.Annotations[corev1.EndpointsOverCapacity]
}

// desired returns the Endpoints of a service with these pods, based on the current
// ones.
func desired(service *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints) *corev1.Endpoints {
	e := current.DeepCopy()
	e.Namespace, e.Name = service.Namespace, service.Name
	e.Labels = map[string]string{}
	maps.Copy(e.Labels, service.Labels)
	delete(e.Labels, corev1.IsHeadlessService)
	if headless(service) {
		e.Labels[corev1.IsHeadlessService] = ""
	}
	e.Labels[managedBy] = manager
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	var truncated bool
	e.Subsets, truncated = truncate(subsets.Pack(addresses(service, pods)))
	delete(e.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		e.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	return e
}

// headless reports whether the service has no cluster IP.
func headless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone
}
