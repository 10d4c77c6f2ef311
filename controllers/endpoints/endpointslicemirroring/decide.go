package endpointslicemirroring

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	endpointsliceutil "k8s.io/endpointslice/util"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/endpoints/internal/subsets"
)

// mirrored reports whether the Endpoints are mirrored. Those of a service with a
// selector are not: its slices are made from its pods.
func mirrored(e *corev1.Endpoints, service *corev1.Service) bool {
	_, lock := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !lock && e.Labels[discoveryv1.LabelSkipMirror] != "true" && service != nil && len(service.Spec.Selector) == 0
}

// image is the slices that mirror Endpoints.
type image struct {
	slices []*discoveryv1.EndpointSlice
	// invalid and tooMany count the skipped addresses: those that are no IP, and
	// those above the limit of a subset.
	invalid, tooMany int
}

// mirror returns a slice for each IP family of each subset, with at most limit
// addresses of a subset. The slices have no names yet.
func mirror(e *corev1.Endpoints, owner metav1.OwnerReference, limit int) image {
	var m image
	for _, s := range subsets.Pack(subsets.Unpack(e.Subsets)) {
		families := map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
		taken := 0
		take := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				family, endpoint := convert(a, ready)
				switch {
				case family == "":
					m.invalid++
				case taken == limit:
					m.tooMany++
				default:
					taken++
					families[family] = append(families[family], endpoint)
				}
			}
		}
		take(s.Addresses, true)
		take(s.NotReadyAddresses, false)
		for _, family := range slices.Sorted(maps.Keys(families)) {
			m.slices = append(m.slices, &discoveryv1.EndpointSlice{
				ObjectMeta: objectMeta(e, owner), AddressType: family, Endpoints: families[family], Ports: ports(s.Ports),
			})
		}
	}
	return m
}

// convert returns the endpoint of an address and its family, which is empty if the
// address is no IP.
func convert(a corev1.EndpointAddress, ready bool) (discoveryv1.AddressType, discoveryv1.Endpoint) {
	ip := netutils.ParseIPSloppy(a.IP)
	if ip == nil {
		return "", discoveryv1.Endpoint{}
	}
	endpoint := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef,
		NodeName:   a.NodeName,
	}
	if a.Hostname != "" {
		endpoint.Hostname = &a.Hostname
	}
	if netutils.IsIPv6(ip) {
		return discoveryv1.AddressTypeIPv6, endpoint
	}
	return discoveryv1.AddressTypeIPv4, endpoint
}

func ports(all []corev1.EndpointPort) []discoveryv1.EndpointPort {
	converted := make([]discoveryv1.EndpointPort, 0, len(all))
	for _, p := range all {
		converted = append(converted, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return converted
}

// objectMeta returns the metadata of a slice, with the labels and annotations of
// the Endpoints except those about the last change and the last applied
// configuration.
func objectMeta(e *corev1.Endpoints, owner metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace:       e.Namespace,
		GenerateName:    e.Name + "-",
		Labels:          map[string]string{},
		Annotations:     map[string]string{},
		OwnerReferences: []metav1.OwnerReference{owner},
	}
	if len(apivalidation.NameIsDNSSubdomain(m.GenerateName, true)) > 0 {
		m.GenerateName = e.Name
	}
	maps.Copy(m.Labels, e.Labels)
	m.Labels[discoveryv1.LabelServiceName] = e.Name
	m.Labels[discoveryv1.LabelManagedBy] = manager
	maps.Copy(m.Annotations, e.Annotations)
	delete(m.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	return m
}

// plan is the slices to write.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
}

// compare returns the plan that turns the existing slices into the wanted ones. It
// reuses existing slices: those with the same ports first, then any of the same
// address type, which is immutable.
func compare(wanted, existing []*discoveryv1.EndpointSlice) plan {
	var p plan
	left := slices.SortedFunc(slices.Values(existing), func(a, b *discoveryv1.EndpointSlice) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	take := func(w *discoveryv1.EndpointSlice, fits func(*discoveryv1.EndpointSlice) bool) bool {
		i := slices.IndexFunc(left, func(e *discoveryv1.EndpointSlice) bool { return e.AddressType == w.AddressType && fits(e) })
		if i < 0 {
			return false
		}
		if e := left[i]; !same(w, e) {
			p.update = append(p.update, become(e, w))
		}
		left = slices.Delete(left, i, i+1)
		return true
	}
	var unmatched []*discoveryv1.EndpointSlice
	for _, w := range wanted {
		if !take(w, func(e *discoveryv1.EndpointSlice) bool { return portsKey(e) == portsKey(w) }) {
			unmatched = append(unmatched, w)
		}
	}
	for _, w := range unmatched {
		if !take(w, func(*discoveryv1.EndpointSlice) bool { return true }) {
			p.create = append(p.create, w)
		}
	}
	p.remove = left
	return p
}

func portsKey(s *discoveryv1.EndpointSlice) endpointsliceutil.PortMapKey {
	return endpointsliceutil.NewPortMapKey(slices.Clone(s.Ports)) // it sorts them
}

func same(a, b *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) && equality.Semantic.DeepEqual(a.Ports, b.Ports)
}

// become returns an existing slice with the content of another.
func become(existing, content *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := existing.DeepCopy()
	s.Labels, s.Annotations, s.OwnerReferences = content.Labels, content.Annotations, content.OwnerReferences
	s.Endpoints, s.Ports = content.Endpoints, content.Ports
	return s
}
