package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
)

// clusterIPsFitFamilies validates clusterIP, clusterIPs, ipFamilies and
// ipFamilyPolicy together. Missing values are filled in after validation.
func clusterIPsFitFamilies(s *corev1.Service) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	errs := clusterIPsAgree(s)
	errs = append(errs, familiesAreKnown(s)...)
	bad := clusterIPsAreValid(s)
	errs = append(errs, bad...)
	ips := s.Spec.ClusterIPs
	path := specPath.Child("clusterIPs")
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(path, ips, "may only hold up to 2 values"))
	}
	if len(bad) > 0 {
		return errs
	}
	if len(ips) > 1 && len(ipFamiliesOf(ips)) < 2 {
		errs = append(errs, field.Invalid(path, ips, "may specify no more than one IP for each IP family"))
	}
	if headless(s) {
		return errs
	}
	for i, ip := range ips[:min(len(ips), len(s.Spec.IPFamilies))] {
		family := s.Spec.IPFamilies[i]
		if slices.Contains(ipFamilies, family) && family != familyOf(ip) {
			errs = append(errs, field.Invalid(path.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", family, i)))
		}
	}
	return errs
}

var ipFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// ipFamiliesOf returns the families of the addresses, each once.
func ipFamiliesOf(ips []string) []corev1.IPFamily {
	var families []corev1.IPFamily
	for _, ip := range ips {
		if family := familyOf(ip); !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	return families
}

// clusterIPsAgree requires that clusterIP is the first of clusterIPs.
func clusterIPsAgree(s *corev1.Service) field.ErrorList {
	path := specPath.Child("clusterIPs")
	ips := s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		return field.ErrorList{field.Invalid(path, ips, "must be empty when `clusterIP` is not specified")}
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		return field.ErrorList{field.Required(path, "")}
	case s.Spec.ClusterIP != "" && ips[0] != s.Spec.ClusterIP:
		return field.ErrorList{field.Invalid(path, ips, "first value must match `clusterIP`")}
	}
	return nil
}

func familiesAreKnown(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	for i, family := range s.Spec.IPFamilies {
		path := specPath.Child("ipFamilies").Index(i)
		errs = append(errs, resource.OneOf(path, family, ipFamilies...)...)
		if slices.Contains(s.Spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(path, family))
		}
	}
	if policy := s.Spec.IPFamilyPolicy; policy != nil {
		errs = append(errs, resource.OneOf(specPath.Child("ipFamilyPolicy"), *policy,
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack,
		)...)
	}
	return errs
}

func clusterIPsAreValid(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("clusterIPs")
	for i, ip := range s.Spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(s.Spec.ClusterIPs) > 1 {
				errs = append(errs, field.Invalid(path, s.Spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		errs = append(errs, validation.IsValidIPForLegacyField(path.Index(i), ip, true, nil)...)
	}
	return errs
}

// validateServiceUpdate forbids changes of the first cluster IP and family, unless
// the service is or becomes an ExternalName. A second family may be added and
// removed (see completeFamilies). Invalid addresses and families are reported as
// invalid only, not as changed.
func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if needsClusterIP(s) && needsClusterIP(old) && (!headless(s) || !headless(old)) && len(clusterIPsFitFamilies(s)) == 0 {
		errs = append(errs, clusterIPsStay(s, old)...)
		if !headless(s) && !headless(old) {
			errs = append(errs, familiesStay(s, old)...)
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		!equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(specPath.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	if needsHealthCheckPort(s) && needsHealthCheckPort(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

func clusterIPsStay(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("clusterIPs")
	ips, was := s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(ips) == 0 && len(was) > 0 {
		errs = append(errs, field.Invalid(path.Index(0), ips, "primary clusterIP can not be unset"))
	}
	for i := range min(len(ips), len(was)) {
		// Only the first counts when the number changes.
		if ips[i] != was[i] && (i == 0 || len(ips) == len(was)) {
			errs = append(errs, field.Invalid(path.Index(i), ips, "may not change once set"))
		}
	}
	return errs
}

// familiesStay allows a client to leave the families out: they are filled in
// later.
func familiesStay(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("ipFamilies").Index(0)
	families, was := s.Spec.IPFamilies, old.Spec.IPFamilies
	for i := range min(len(families), len(was)) {
		if families[i] != was[i] && (i == 0 || len(families) == len(was)) {
			errs = append(errs, field.Invalid(path, families, "may not change once set"))
		}
	}
	return errs
}

func validateServiceStatus(s, _ *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var errs field.ErrorList
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		errs = append(errs, validateIngress(ingress, path.Index(i))...)
	}
	return errs
}

func validateIngress(ingress corev1.LoadBalancerIngress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ingress.IP != "" {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("ip"), ingress.IP, true, nil)...)
	}
	switch mode := ingress.IPMode; {
	case mode == nil && ingress.IP != "":
		errs = append(errs, field.Required(path.Child("ipMode"), "must be specified when `ip` is set"))
	case mode != nil && ingress.IP == "":
		errs = append(errs, field.Forbidden(path.Child("ipMode"), "may not be specified when `ip` is not set"))
	case mode != nil:
		errs = append(errs, resource.OneOf(path.Child("ipMode"), *mode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
	}
	if ingress.Hostname == "" {
		return errs
	}
	errs = append(errs, resource.Invalid(path.Child("hostname"), ingress.Hostname, validation.IsDNS1123Subdomain(ingress.Hostname))...)
	if netutils.ParseIPSloppy(ingress.Hostname) != nil {
		errs = append(errs, field.Invalid(path.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
	}
	return errs
}
