package servicehealth

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// health is what the server of a service answers with.
type health struct {
	port int32
	// endpoints is the number of ready endpoints of an IP family on this node, each counted
	// once whatever the number of its ports.
	endpoints int
}

// healthOf returns what a node answers about a service at its addresses of an IP family. The
// port is 0 if it answers nothing: only a load balancer's service of the family whose external
// traffic stays on the node has one, unless another proxy serves it.
func healthOf(object services.Object, node string, family corev1.IPFamily) health {
	s := object.Service
	if s == nil || services.Foreign(s) || s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return health{}
	}
	if !slices.Contains(s.Spec.IPFamilies, family) {
		return health{}
	}
	ready := map[netip.Addr]bool{}
	for _, slice := range object.Slices {
		if services.Headless(slice) || string(slice.AddressType) != string(family) {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.NodeName, "") != node || !ptr.Deref(e.Conditions.Ready, true) || len(e.Addresses) == 0 {
				continue
			}
			if address, ok := services.Address(e.Addresses[0]); ok {
				ready[address] = true
			}
		}
	}
	return health{s.Spec.HealthCheckNodePort, len(ready)}
}
