package networking

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
)

// classAnnotation is the predecessor of spec.ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

var ingresses = resource.Type[*networkingv1.Ingress]{
	Name: "ingresses", ShortNames: []string{"ing"}, Namespaced: true,
	Versions:       ingressVersions(),
	ValidateCreate: func(i *networkingv1.Ingress) field.ErrorList { return validateIngress(i, ingressLeniency{}) },
	ValidateUpdate: func(i, old *networkingv1.Ingress) field.ErrorList {
		return validateIngress(i, ingressLeniencyOf(old))
	},
	Warn:   warnIngress,
	Status: true,
	ValidateStatus: func(i, _ *networkingv1.Ingress) field.ErrorList {
		return validateIngressStatus(i.Status.LoadBalancer.Ingress)
	},
	Generation: true,
	Columns: []resource.Column[*networkingv1.Ingress]{
		resource.Name[*networkingv1.Ingress](),
		{Name: "Class", Description: "The name of the IngressClass resource that should be used for additional configuration", Since: 18,
			Value: func(i *networkingv1.Ingress) any {
				if i.Spec.IngressClassName == nil {
					return "<none>"
				}
				return *i.Spec.IngressClassName
			}},
		{Name: "Hosts", Description: "Hosts that incoming requests are matched against before the ingress rule",
			Value: func(i *networkingv1.Ingress) any { return hostsCell(i.Spec.Rules) }},
		{Name: "Address", Description: "Address is a list containing ingress points for the load-balancer",
			Value: func(i *networkingv1.Ingress) any { return addressCell(i.Status.LoadBalancer.Ingress) }},
		{Name: "Ports", Description: "Ports of TLS configurations that open", Value: func(i *networkingv1.Ingress) any {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}},
		resource.Age[*networkingv1.Ingress](),
	},
}

// ingressLeniency is what the older versions accept, and v1 in objects that have it already
// (kubernetes/pkg/apis/networking/validation: IngressValidationOptions, which keeps bugs of the
// older versions).
type ingressLeniency struct {
	// secretNames accepts any name of a secret for TLS.
	secretNames bool
	// wildcards accepts any paths and backends in rules of wildcard hosts.
	wildcards bool
}

// ingressLeniencyOf returns what is lenient for the next version of an object.
func ingressLeniencyOf(i *networkingv1.Ingress) ingressLeniency {
	path := field.NewPath("spec")
	return ingressLeniency{
		secretNames: slices.ContainsFunc(i.Spec.TLS, func(tls networkingv1.IngressTLS) bool { return len(validateSecretName(path, tls.SecretName)) > 0 }),
		wildcards: slices.ContainsFunc(i.Spec.Rules, func(rule networkingv1.IngressRule) bool {
			return isWildcard(rule.Host) && len(validatePaths(path, rule.HTTP)) > 0
		}),
	}
}

func validateIngress(i *networkingv1.Ingress, lenient ingressLeniency) field.ErrorList {
	var errs field.ErrorList
	spec, path := &i.Spec, field.NewPath("spec")
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(path.Child("defaultBackend"), spec.DefaultBackend)...)
	}
	for n, rule := range spec.Rules {
		errs = append(errs, validateIngressRule(path.Child("rules").Index(n), &rule, lenient)...)
	}
	for n, tls := range spec.TLS {
		at := path.Child("tls").Index(n)
		for h, host := range tls.Hosts {
			errs = append(errs, validateHost(at.Child("hosts").Index(h), host)...)
		}
		if !lenient.secretNames {
			errs = append(errs, validateSecretName(at.Child("secretName"), tls.SecretName)...)
		}
	}
	if class := spec.IngressClassName; class != nil {
		errs = append(errs, resource.Invalid(path.Child("ingressClassName"), *class, apivalidation.NameIsDNSSubdomain(*class, false))...)
		// Kubernetes checks this on create only; an ingress that satisfies
		// it is not expected to break it later.
		if old, ok := i.Annotations[classAnnotation]; ok && old != *class && i.ResourceVersion == "" {
			errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), old, "must match `ingressClassName` when both are specified"))
		}
	}
	return errs
}

func validateSecretName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return resource.Invalid(path, name, apivalidation.NameIsDNSSubdomain(name, false))
}

func validateIngressRule(path *field.Path, rule *networkingv1.IngressRule, lenient ingressLeniency) field.ErrorList {
	var errs field.ErrorList
	if rule.Host != "" {
		if netutils.ParseIPSloppy(rule.Host) != nil {
			errs = append(errs, field.Invalid(path.Child("host"), rule.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(path.Child("host"), rule.Host)...)
	}
	if lenient.wildcards && isWildcard(rule.Host) {
		return errs
	}
	return append(errs, validatePaths(path.Child("http", "paths"), rule.HTTP)...)
}

func validatePaths(path *field.Path, http *networkingv1.HTTPIngressRuleValue) field.ErrorList {
	if http == nil {
		return nil
	}
	if len(http.Paths) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i := range http.Paths {
		errs = append(errs, validateHTTPPath(path.Index(i), &http.Paths[i])...)
	}
	return errs
}

func isWildcard(host string) bool { return strings.Contains(host, "*") }

func validateHost(path *field.Path, host string) field.ErrorList {
	if isWildcard(host) {
		return resource.Invalid(path, host, validation.IsWildcardDNS1123Subdomain(host))
	}
	return resource.Invalid(path, host, validation.IsDNS1123Subdomain(host))
}

func validateHTTPPath(path *field.Path, p *networkingv1.HTTPIngressPath) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		errs = resource.Invalid(path.Child("path"), p.Path, urlPathFaults(p.Path))
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(path.Child("path"), p.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType,
			[]networkingv1.PathType{networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(path.Child("backend"), &p.Backend)...)
}

// urlPathFaults returns the problems of a path that proxies could interpret
// differently.
func urlPathFaults(path string) []string {
	var faults []string
	if !strings.HasPrefix(path, "/") {
		faults = append(faults, "must be an absolute path")
	}
	for _, sequence := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(path, sequence) {
			faults = append(faults, fmt.Sprintf("must not contain '%s'", sequence))
		}
	}
	for _, suffix := range []string{"/..", "/."} {
		if strings.HasSuffix(path, suffix) {
			faults = append(faults, fmt.Sprintf("cannot end with '%s'", suffix))
		}
	}
	return faults
}

func validateBackend(path *field.Path, b *networkingv1.IngressBackend) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(path.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service != nil:
		return validateServiceBackend(path, b.Service)
	}
	return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
}

func validateServiceBackend(path *field.Path, s *networkingv1.IngressServiceBackend) field.ErrorList {
	var errs field.ErrorList
	name := path.Child("service", "name")
	if s.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		errs = append(errs, resource.Invalid(name, s.Name, apivalidation.NameIsDNSLabel(s.Name, false))...)
	}
	port := path.Child("service", "port")
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, resource.Invalid(port.Child("name"), s.Port.Name, validation.IsValidPortName(s.Port.Name))...)
	case s.Port.Number != 0:
		errs = append(errs, resource.Invalid(port.Child("number"), s.Port.Number, validation.IsValidPortNum(int(s.Port.Number)))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func validateIngressStatus(points []networkingv1.IngressLoadBalancerIngress) field.ErrorList {
	var errs field.ErrorList
	for i, p := range points {
		path := field.NewPath("status", "loadBalancer", "ingress").Index(i)
		if p.IP != "" {
			errs = append(errs, resource.IP(path.Child("ip"), p.IP)...)
		}
		if p.Hostname != "" {
			errs = append(errs, resource.Invalid(path.Child("hostname"), p.Hostname, validation.IsDNS1123Subdomain(p.Hostname))...)
			if netutils.ParseIPSloppy(p.Hostname) != nil {
				errs = append(errs, field.Invalid(path.Child("hostname"), p.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

func warnIngress(i, old *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[classAnnotation]; old == nil && ok && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
	}
	return nil
}

// hostsCell shows the hosts of the first three rules.
func hostsCell(rules []networkingv1.IngressRule) string {
	const shown = 3
	var hosts []string
	more := 0
	for _, rule := range rules {
		if len(hosts) == shown {
			more = len(rules) - shown
			break
		}
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	switch {
	case len(hosts) == 0:
		return "*"
	case more > 0:
		return fmt.Sprintf("%s + %d more...", strings.Join(hosts, ","), more)
	}
	return strings.Join(hosts, ",")
}

func addressCell(points []networkingv1.IngressLoadBalancerIngress) string {
	var addresses []string
	for _, p := range points {
		if p.IP != "" {
			addresses = append(addresses, p.IP)
		} else if p.Hostname != "" {
			addresses = append(addresses, p.Hostname)
		}
	}
	slices.Sort(addresses)
	return strings.Join(slices.Compact(addresses), ",")
}
