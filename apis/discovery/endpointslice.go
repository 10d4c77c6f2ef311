package discovery

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

// The greatest numbers of the parts of a slice.
const (
	maxEndpoints = 1000
	maxPorts     = 20_000
	maxAddresses = 100
	maxHints     = 8
	maxTopology  = 16
)

var endpointSlices = resource.Type[*discoveryv1.EndpointSlice]{
	Name: "endpointslices", Namespaced: true,
	Versions: []resource.Version{
		resource.Convert(sliceFromV1beta1, sliceToV1beta1),
		resource.Also[discoveryv1beta1.EndpointSlice](schema.GroupVersion{Group: discoveryv1.GroupName, Version: "v1alpha1"}),
	},
	Default: func(s *discoveryv1.EndpointSlice) {
		for i := range s.Ports {
			resource.Fill(&s.Ports[i].Name, "")
			resource.Fill(&s.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	},
	PrepareCreate: func(ctx context.Context, _ *resource.Env, s *discoveryv1.EndpointSlice) { dropTopology(ctx, s, nil) },
	PrepareUpdate: prepareSliceUpdate,
	Validate:      validateSlice,
	ValidateUpdate: func(s, old *discoveryv1.EndpointSlice) field.ErrorList {
		return apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType"))
	},
	Warn:       warnSlice,
	Generation: true,
	Columns: []resource.Column[*discoveryv1.EndpointSlice]{
		resource.Name[*discoveryv1.EndpointSlice](),
		{Name: "AddressType", Description: sliceDoc["addressType"], Value: func(s *discoveryv1.EndpointSlice) any { return string(s.AddressType) }},
		{Name: "Ports", Description: sliceDoc["ports"], Value: func(s *discoveryv1.EndpointSlice) any { return portsCell(s.Ports) }},
		{Name: "Endpoints", Description: sliceDoc["endpoints"], Value: func(s *discoveryv1.EndpointSlice) any { return endpointsCell(s.Endpoints) }},
		resource.Age[*discoveryv1.EndpointSlice](),
	},
}

var sliceDoc = discoveryv1.EndpointSlice{}.SwaggerDoc()

// dropTopology drops the field that only clients of v1beta1 may write. What an object
// has stays in an update that does not change its endpoints; otherwise the name of a
// node in it becomes nodeName. old is nil on create.
func dropTopology(ctx context.Context, s, old *discoveryv1.EndpointSlice) {
	if info, ok := request.RequestInfoFrom(ctx); ok && info.APIVersion == discoveryv1beta1.SchemeGroupVersion.Version {
		return
	}
	nodes := map[string]bool{}
	if old != nil {
		if apiequality.Semantic.DeepEqual(old.Endpoints, s.Endpoints) {
			return
		}
		for _, e := range old.Endpoints {
			nodes[e.DeprecatedTopology[corev1.LabelHostname]] = true
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if node, ok := e.DeprecatedTopology[corev1.LabelHostname]; ok && e.NodeName == nil && nodes[node] && len(apivalidation.NameIsDNSSubdomain(node, false)) == 0 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}

// prepareSliceUpdate increments the generation when labels change, too: a label
// names the service of a slice.
func prepareSliceUpdate(ctx context.Context, _ *resource.Env, s, old *discoveryv1.EndpointSlice) {
	dropTopology(ctx, s, old)
	if s.Generation == old.Generation && !apiequality.Semantic.DeepEqual(s.Labels, old.Labels) {
		s.Generation++
	}
}

func validateSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	if s.AddressType == "" {
		errs = append(errs, field.Required(field.NewPath("addressType"), ""))
	} else {
		errs = append(errs, resource.OneOf(field.NewPath("addressType"), s.AddressType,
			discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)...)
	}
	errs = append(errs, validatePorts(field.NewPath("ports"), s.Ports)...)
	path := field.NewPath("endpoints")
	if len(s.Endpoints) > maxEndpoints {
		return append(errs, field.TooMany(path, len(s.Endpoints), maxEndpoints))
	}
	for i := range s.Endpoints {
		errs = append(errs, validateEndpoint(path.Index(i), &s.Endpoints[i], s.AddressType)...)
	}
	return errs
}

func validatePorts(path *field.Path, ports []discoveryv1.EndpointPort) field.ErrorList {
	if len(ports) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxPorts)}
	}
	var errs field.ErrorList
	names := make(map[string]bool, len(ports))
	for i, p := range ports {
		at, name := path.Index(i), *p.Name
		if name != "" {
			errs = append(errs, resource.Invalid(at.Child("name"), name, validation.IsDNS1123Label(name))...)
		}
		if names[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		names[name] = true
		errs = append(errs, resource.OneOf(at.Child("protocol"), *p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if p.AppProtocol != nil {
			errs = append(errs, resource.Invalid(at.Child("appProtocol"), *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))...)
		}
	}
	return errs
}

func validateEndpoint(path *field.Path, e *discoveryv1.Endpoint, kind discoveryv1.AddressType) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	if len(e.Addresses) == 0 {
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	} else if len(e.Addresses) > maxAddresses {
		errs = append(errs, field.TooMany(addresses, len(e.Addresses), maxAddresses))
	}
	for i, address := range e.Addresses {
		errs = append(errs, validateAddress(addresses.Index(i), address, kind)...)
	}
	topology := path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopology {
		errs = append(errs, field.TooMany(topology, len(e.DeprecatedTopology), maxTopology))
	}
	errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if e.NodeName != nil {
		errs = append(errs, resource.Invalid(path.Child("nodeName"), *e.NodeName, apivalidation.NameIsDNSSubdomain(*e.NodeName, false))...)
	}
	if e.Hostname != nil {
		errs = append(errs, resource.Invalid(path.Child("hostname"), *e.Hostname, validation.IsDNS1123Label(*e.Hostname))...)
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(path.Child("hints"), e.Hints)...)
	}
	return errs
}

// validateAddress validates an address of a known type; an unknown type is an
// error of its own.
func validateAddress(path *field.Path, address string, kind discoveryv1.AddressType) field.ErrorList {
	var errs field.ErrorList
	var family string
	switch kind {
	case discoveryv1.AddressTypeIPv4:
		errs, family = resource.IP(path, address), "must be an IPv4 address"
	case discoveryv1.AddressTypeIPv6:
		errs, family = validation.IsValidIP(path, address), "must be an IPv6 address"
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(path, address)
	default:
		return nil
	}
	if len(errs) > 0 {
		return errs
	}
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is4() != (kind == discoveryv1.AddressTypeIPv4) {
		errs = append(errs, field.Invalid(path, address, family))
	}
	return append(errs, resource.ReachableIP(path, address)...)
}

func validateHints(path *field.Path, h *discoveryv1.EndpointHints) field.ErrorList {
	zones := make([]string, 0, len(h.ForZones))
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	nodes := make([]string, 0, len(h.ForNodes))
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	errs := validateHintNames(path.Child("forZones"), zones, validation.IsValidLabelValue)
	return append(errs, validateHintNames(path.Child("forNodes"), nodes, func(name string) []string {
		return apivalidation.NameIsDNSSubdomain(name, false)
	})...)
}

func validateHintNames(path *field.Path, names []string, rule func(string) []string) field.ErrorList {
	if len(names) > maxHints {
		return field.ErrorList{field.TooMany(path, len(names), maxHints)}
	}
	var errs field.ErrorList
	for i, name := range names {
		at := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		errs = append(errs, resource.Invalid(at, name, rule(name))...)
	}
	return errs
}

// warnSlice warns of what is accepted but should not be used. The slices of
// controllers are many and spared the search.
func warnSlice(s, old *discoveryv1.EndpointSlice) []string {
	var warnings []string
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		warnings = append(warnings, "addressType: FQDN endpoints are deprecated")
	}
	if strings.HasSuffix(s.Labels[discoveryv1.LabelManagedBy], "-controller.k8s.io") || s.AddressType == discoveryv1.AddressTypeFQDN {
		return warnings
	}
	for i, e := range s.Endpoints {
		for n, address := range e.Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(n), address)...)
		}
	}
	return warnings
}

func portsCell(ports []discoveryv1.EndpointPort) string {
	var cells []string
	for _, p := range ports {
		switch {
		case p.Port != nil:
			cells = append(cells, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			cells = append(cells, *p.Name)
		default:
			cells = append(cells, "*")
		}
	}
	return firstThree(cells)
}

func endpointsCell(endpoints []discoveryv1.Endpoint) string {
	var cells []string
	for _, e := range endpoints {
		cells = append(cells, e.Addresses...)
	}
	return firstThree(cells)
}

func firstThree(cells []string) string {
	const shown = 3
	if len(cells) > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(cells[:shown], ","), len(cells)-shown)
	}
	if text := strings.Join(cells, ","); text != "" {
		return text
	}
	return "<unset>"
}
