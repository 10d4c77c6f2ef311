package records

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// endpoint is a ready endpoint of a service.
type endpoint struct {
	// name is its label below the service.
	name, address string
	ports         map[portKey]int32
}

// portKey identifies a port of a service.
type portKey struct {
	name     string
	protocol corev1.Protocol
}

// endpointsOf returns the ready endpoints, each address once for each slice that has it.
func endpointsOf(object services.Object) []endpoint {
	var all []endpoint
	for _, slice := range object.Slices {
		ports := make(map[portKey]int32, len(slice.Ports))
		for _, p := range slice.Ports {
			if number, valid := services.EndpointPort(p); valid {
				ports[portKey{ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP)}] = number
			}
		}
		for _, e := range slice.Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			for _, text := range e.Addresses {
				if address, valid := services.EndpointAddress(slice, text); valid {
					all = append(all, endpoint{nameOf(e, text), address.String(), ports})
				}
			}
		}
	}
	return all
}

// nameOf returns the label of an endpoint: its host name, or its address.
func nameOf(e discoveryv1.Endpoint, address string) string {
	if name := ptr.Deref(e.Hostname, ""); name != "" {
		return strings.ToLower(name)
	}
	return dashes.Replace(address)
}

var dashes = strings.NewReplacer(".", "-", ":", "-")
