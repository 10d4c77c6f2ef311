package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
)

// serviceRules holds the validation rules of services, in the order of the
// messages.
var serviceRules = []func(*corev1.Service) field.ErrorList{
	topologyAnnotationsAgree,
	typeFitsPortsAndAddresses,
	portsAreWellFormed,
	selectorIsWellFormed,
	sessionAffinityIsComplete,
	clusterIPsFitFamilies,
	externalIPsAreReachable,
	typeIsKnown,
	nodePortsFitType,
	portsAreDistinct,
	sourceRangesFitType,
	balancerFieldsFitType,
	externalTrafficPolicyFitsType,
	trafficPreferencesAreKnown,
}

func validateService(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	for _, rule := range serviceRules {
		errs = append(errs, rule(s)...)
	}
	return errs
}

var specPath = field.NewPath("spec")

func topologyAnnotationsAgree(s *corev1.Service) field.ErrorList {
	hints, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, moded := s.Annotations[corev1.AnnotationTopologyMode]
	if hinted && moded && hints != mode {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
	}
	return nil
}

func typeFitsPortsAndAddresses(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && !headless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	if hasNodePorts(s) && headless(s) {
		errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
			fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		return errs
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"clusterIPs", len(s.Spec.ClusterIPs) > 0},
		{"ipFamilies", len(s.Spec.IPFamilies) > 0},
		{"ipFamilyPolicy", s.Spec.IPFamilyPolicy != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(specPath.Child(f.name), "may not be set for ExternalName services"))
		}
	}
	// A trailing dot says that the name is fully qualified.
	name := strings.TrimSuffix(s.Spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(specPath.Child("externalName"), ""))
	}
	return append(errs, resource.Invalid(specPath.Child("externalName"), name, validation.IsDNS1123Subdomain(name))...)
}

func portsAreWellFormed(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, port := range s.Spec.Ports {
		path := specPath.Child("ports").Index(i)
		errs = append(errs, validateServicePort(port, len(s.Spec.Ports) > 1, path)...)
		if port.Name != "" && names[port.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), port.Name))
		}
		names[port.Name] = true
	}
	return errs
}

var protocols = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}

func validateServicePort(port corev1.ServicePort, requireName bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if port.Name != "" {
		errs = append(errs, resource.Invalid(path.Child("name"), port.Name, validation.IsDNS1123Label(port.Name))...)
	} else if requireName {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, resource.Invalid(path.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
	errs = append(errs, validateProtocol(port.Protocol, path.Child("protocol"))...)
	if port.TargetPort.Type == intstr.String {
		errs = append(errs, resource.Invalid(path.Child("targetPort"), port.TargetPort.StrVal, validation.IsValidPortName(port.TargetPort.StrVal))...)
	} else {
		errs = append(errs, resource.Invalid(path.Child("targetPort"), port.TargetPort.IntValue(), validation.IsValidPortNum(port.TargetPort.IntValue()))...)
	}
	if port.AppProtocol != nil {
		errs = append(errs, resource.Invalid(path.Child("appProtocol"), *port.AppProtocol, validation.IsQualifiedName(*port.AppProtocol))...)
	}
	return errs
}

func validateProtocol(protocol corev1.Protocol, path *field.Path) field.ErrorList {
	if protocol == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.OneOf(path, protocol, protocols...)
}

func selectorIsWellFormed(s *corev1.Service) field.ErrorList {
	return metavalidation.ValidateLabels(s.Spec.Selector, specPath.Child("selector"))
}

// maxAffinitySeconds is the longest session affinity, a day.
const maxAffinitySeconds = 86400

func sessionAffinityIsComplete(s *corev1.Service) field.ErrorList {
	path := specPath.Child("sessionAffinityConfig")
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if s.Spec.SessionAffinityConfig != nil {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))}
		}
	case corev1.ServiceAffinityClientIP:
		// Defaults have completed the configuration.
		seconds := *s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds
		if seconds <= 0 || seconds > maxAffinitySeconds {
			return field.ErrorList{field.Invalid(path.Child("clientIP", "timeoutSeconds"), seconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))}
		}
	default:
		return resource.OneOf(specPath.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	}
	return nil
}

func externalIPsAreReachable(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range s.Spec.ExternalIPs {
		path := specPath.Child("externalIPs").Index(i)
		if bad := validation.IsValidIPForLegacyField(path, ip, true, nil); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, validateReachableIP(ip, path)...)
	}
	return errs
}

// validateReachableIP refuses addresses that mean nothing on another machine.
func validateReachableIP(value string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(value)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address")}
	}
	var errs field.ErrorList
	for _, rule := range []struct {
		broken bool
		msg    string
	}{
		{ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", value)},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if rule.broken {
			errs = append(errs, field.Invalid(path, value, rule.msg))
		}
	}
	return errs
}

func typeIsKnown(s *corev1.Service) field.ErrorList {
	return resource.OneOf(specPath.Child("type"), s.Spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
	)
}

func nodePortsFitType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ServicePort]bool{}
	for i, port := range s.Spec.Ports {
		if port.NodePort == 0 {
			continue
		}
		path := specPath.Child("ports").Index(i).Child("nodePort")
		if s.Spec.Type == corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Forbidden(path, "may not be used when `type` is 'ClusterIP'"))
		}
		key := corev1.ServicePort{Protocol: port.Protocol, NodePort: port.NodePort}
		if seen[key] {
			errs = append(errs, field.Duplicate(path, port.NodePort))
		}
		seen[key] = true
	}
	return errs
}

func portsAreDistinct(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ServicePort]bool{}
	for i, port := range s.Spec.Ports {
		key := corev1.ServicePort{Protocol: port.Protocol, Port: port.Port}
		if seen[key] {
			errs = append(errs, field.Duplicate(specPath.Child("ports").Index(i), key))
		}
		seen[key] = true
	}
	return errs
}

// sourceRangesFitType validates loadBalancerSourceRanges, or the annotation that
// preceded the field. Values may be padded with spaces.
func sourceRangesFitType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	const typeMsg = "may only be used when `type` is 'LoadBalancer'"
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		path := specPath.Child("LoadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(path, typeMsg))
		}
		for i, value := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(value), true, nil)...)
		}
		return errs
	}
	annotation, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if !balanced {
		errs = append(errs, field.Forbidden(path, typeMsg))
	}
	if annotation = strings.TrimSpace(annotation); annotation == "" {
		return errs
	}
	for value := range strings.SplitSeq(annotation, ",") {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path, strings.TrimSpace(value), true, nil)...)
	}
	return errs
}

func balancerFieldsFitType(s *corev1.Service) field.ErrorList {
	const typeMsg = "may only be used when `type` is 'LoadBalancer'"
	class := s.Spec.LoadBalancerClass
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if class == nil {
			return nil
		}
		return resource.Invalid(specPath.Child("loadBalancerClass"), *class, validation.IsQualifiedName(*class))
	}
	var errs field.ErrorList
	if s.Spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(specPath.Child("allocateLoadBalancerNodePorts"), typeMsg))
	}
	if class != nil {
		errs = append(errs, field.Forbidden(specPath.Child("loadBalancerClass"), typeMsg))
	}
	return errs
}

// externalTrafficPolicyFitsType allows a service that needs a port for health
// checks to have none yet: it is allocated after validation.
func externalTrafficPolicyFitsType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("externalTrafficPolicy")
	if externallyAccessible(s) {
		errs = append(errs, resource.OneOf(path, s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	} else if s.Spec.ExternalTrafficPolicy != "" {
		errs = append(errs, field.Invalid(path, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	port := s.Spec.HealthCheckNodePort
	switch {
	case port == 0:
	case !needsHealthCheckPort(s):
		errs = append(errs, field.Invalid(specPath.Child("healthCheckNodePort"), port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	default:
		errs = append(errs, resource.Invalid(specPath.Child("healthCheckNodePort"), port, validation.IsValidPortNum(int(port)))...)
	}
	return errs
}

func trafficPreferencesAreKnown(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if policy := s.Spec.InternalTrafficPolicy; policy != nil {
		errs = append(errs, resource.OneOf(specPath.Child("internalTrafficPolicy"), *policy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	}
	if distribution := s.Spec.TrafficDistribution; distribution != nil {
		errs = append(errs, resource.OneOf(specPath.Child("trafficDistribution"), *distribution,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode,
		)...)
	}
	return errs
}

// warnService warns of fields that have no effect and of deprecated ones.
func warnService(s, _ *corev1.Service) []string {
	var warnings []string
	add := func(broken bool, format string, args ...any) {
		if broken {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}
	}
	_, hinted := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	add(hinted, "annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode)
	for i, ip := range s.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			warnings = append(warnings, validation.GetWarningsForIP(specPath.Child("clusterIPs").Index(i), ip)...)
		}
	}
	lone := headless(s) && s.Spec.Type == corev1.ServiceTypeClusterIP
	add(lone && s.Spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	add(lone && len(s.Spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
	add(lone && s.Spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	for i, ip := range s.Spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(specPath.Child("externalIPs").Index(i), ip)...)
	}
	if s.Spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(specPath.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, cidr := range s.Spec.LoadBalancerSourceRanges {
		warnings = append(warnings, validation.GetWarningsForCIDR(specPath.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	named := s.Spec.Type == corev1.ServiceTypeExternalName
	add(named && len(s.Spec.ExternalIPs) > 0, "spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName)
	add(!named && s.Spec.ExternalName != "", "spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName)
	return warnings
}
