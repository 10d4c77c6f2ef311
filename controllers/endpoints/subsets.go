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

// addresses are where the pods serve the service: each pod's address in the
// service's first IP family, on each of the ports that it has.
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
			// A pod without a port of that name serves the others.
			if number, err := library.FindPort(pod, p); err == nil {
				a.Port = &corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol}
				all = append(all, a)
			}
		}
	}
	return all
}

// addressOf is the pod's address in the service's first family; "" is none.
func addressOf(service *corev1.Service, pod *corev1.Pod) string {
	want6 := netutils.IsIPv6String(service.Spec.ClusterIP)
	if len(service.Spec.IPFamilies) > 0 {
		want6 = service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	}
	for _, ip := range pod.Status.PodIPs {
		// The canonical form, whatever the node has written.
		if parsed := netutils.ParseIPSloppy(ip.IP); parsed != nil && netutils.IsIPv6(parsed) == want6 {
			return parsed.String()
		}
	}
	return ""
}

// capacity is how many addresses Endpoints hold at most.
const capacity = 1000

// truncate leaves out addresses beyond the capacity, first those that are not
// ready, and the same part of each subset's. It tells whether it has.
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

// share takes the first of a subset's addresses: such a part of room, rounded
// up, as they are of all addresses, but no more than is free yet.
func share(addresses []corev1.EndpointAddress, all, room int, free *int) []corev1.EndpointAddress {
	n := min((len(addresses)*room+all-1)/all, *free)
	*free -= n
	return addresses[:n]
}

// same tells whether nothing is to be written, however old the time of the last
// change is.
func same(a, b *corev1.Endpoints) bool {
	return equality.Semantic.DeepEqual(a.Subsets, b.Subsets) && maps.Equal(a.Labels, b.Labels) &&
		a.Annotations[corev1.EndpointsOverCapacity] == b.Annotations[corev1.EndpointsOverCapacity]
}
