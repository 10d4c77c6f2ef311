package discovery

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// sliceFromV1beta1 converts from v1beta1, whose endpoints have the zone, and may have
// the node's name, in a map of topology keys. The rest of the map becomes
// deprecatedTopology, which clients of v1 cannot write (document 2, section 9).
func sliceFromV1beta1(in *discoveryv1beta1.EndpointSlice, out *discoveryv1.EndpointSlice) error {
	resource.CopyFields(in, out)
	for i := range in.Endpoints {
		topology, e := in.Endpoints[i].Topology, &out.Endpoints[i]
		rest := maps.Clone(topology)
		if zone, ok := topology[corev1.LabelTopologyZone]; ok {
			e.Zone = &zone
			delete(rest, corev1.LabelTopologyZone)
		}
		if host, ok := topology[corev1.LabelHostname]; ok && e.NodeName != nil && *e.NodeName == host {
			delete(rest, corev1.LabelHostname)
		}
		if len(rest) > 0 {
			e.DeprecatedTopology = rest
		}
	}
	return nil
}

func sliceToV1beta1(in *discoveryv1.EndpointSlice, out *discoveryv1beta1.EndpointSlice) error {
	resource.CopyFields(in, out)
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		topology := maps.Clone(e.DeprecatedTopology)
		if topology == nil {
			topology = map[string]string{}
		}
		if e.Zone != nil {
			topology[corev1.LabelTopologyZone] = *e.Zone
		}
		if _, other := topology[corev1.LabelHostname]; e.NodeName != nil && !other {
			topology[corev1.LabelHostname] = ptr.Deref(e.NodeName, "")
		}
		if len(topology) > 0 {
			out.Endpoints[i].Topology = topology
		}
	}
	return nil
}
