package networking

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/apis/resource"
)

var networkPolicies = resource.Type[*networkingv1.NetworkPolicy]{
	Name: "networkpolicies", ShortNames: []string{"netpol"}, Namespaced: true,
	Default:    defaultNetworkPolicy,
	Validate:   validateNetworkPolicy,
	Warn:       func(p, _ *networkingv1.NetworkPolicy) []string { return warnCIDRs(p) },
	Generation: true,
	Columns: []resource.Column[*networkingv1.NetworkPolicy]{
		resource.Name[*networkingv1.NetworkPolicy](),
		{Name: "Pod-Selector", Description: networkingv1.NetworkPolicySpec{}.SwaggerDoc()["podSelector"],
			Value: func(p *networkingv1.NetworkPolicy) any { return metav1.FormatLabelSelector(&p.Spec.PodSelector) }},
		resource.Age[*networkingv1.NetworkPolicy](),
	},
}

// policyRule is an ingress or egress rule, with its path.
type policyRule struct {
	path  *field.Path
	ports []networkingv1.NetworkPolicyPort
	// peers are the rule's from or to, which is what side says.
	peers []networkingv1.NetworkPolicyPeer
	side  string
}

func rulesOf(p *networkingv1.NetworkPolicy) []policyRule {
	var rules []policyRule
	spec := field.NewPath("spec")
	for i, r := range p.Spec.Ingress {
		rules = append(rules, policyRule{spec.Child("ingress").Index(i), r.Ports, r.From, "from"})
	}
	for i, r := range p.Spec.Egress {
		rules = append(rules, policyRule{spec.Child("egress").Index(i), r.Ports, r.To, "to"})
	}
	return rules
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for _, rule := range rulesOf(p) {
		for i := range rule.ports {
			resource.Fill(&rule.ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	if len(p.Spec.PolicyTypes) > 0 {
		return
	}
	// A policy that names no types is one for ingress, and also for egress if
	// it has such rules.
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSelector(path.Child("podSelector"), &p.Spec.PodSelector)
	for _, rule := range rulesOf(p) {
		for i := range rule.ports {
			errs = append(errs, validatePolicyPort(rule.path.Child("ports").Index(i), &rule.ports[i])...)
		}
		for i := range rule.peers {
			errs = append(errs, validatePeer(rule.path.Child(rule.side).Index(i), &rule.peers[i])...)
		}
	}
	types := path.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(types, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, resource.OneOf(types.Index(i), t, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)...)
	}
	return errs
}

func validatePolicyPort(path *field.Path, p *networkingv1.NetworkPolicyPort) field.ErrorList {
	errs := resource.OneOf(path.Child("protocol"), *p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	port, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.String:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, resource.Invalid(port, p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))...)
	default:
		errs = append(errs, resource.Invalid(port, p.Port.IntVal, validation.IsValidPortNum(int(p.Port.IntVal)))...)
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, p.Port.IntVal, "must be greater than or equal to `port`"))
		}
		errs = append(errs, resource.Invalid(end, *p.EndPort, validation.IsValidPortNum(int(*p.EndPort)))...)
	}
	return errs
}

func validatePeer(path *field.Path, p *networkingv1.NetworkPolicyPeer) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validateSelector(path.Child("podSelector"), p.PodSelector)...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validateSelector(path.Child("namespaceSelector"), p.NamespaceSelector)...)
	}
	if p.IPBlock != nil {
		errs = append(errs, validateIPBlock(path.Child("ipBlock"), p.IPBlock)...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case !selects && p.IPBlock == nil:
		errs = append(errs, field.Required(path, "must specify a peer"))
	case selects && p.IPBlock != nil:
		errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
	}
	return errs
}

func validateSelector(path *field.Path, s *metav1.LabelSelector) field.ErrorList {
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

func validateIPBlock(path *field.Path, b *networkingv1.IPBlock) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(path.Child("cidr"), "")}
	}
	errs := resource.CIDR(path.Child("cidr"), b.CIDR)
	_, block, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs // which say so
	}
	length, _ := block.Mask.Size()
	for i, value := range b.Except {
		at := path.Child("except").Index(i)
		errs = append(errs, resource.CIDR(at, value)...)
		_, except, err := netutils.ParseCIDRSloppy(value)
		if err != nil {
			continue // as above
		}
		if inner, _ := except.Mask.Size(); !block.Contains(except.IP) || inner <= length {
			errs = append(errs, field.Invalid(at, value, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

// warnCIDRs warns of ranges that are not in canonical form.
func warnCIDRs(p *networkingv1.NetworkPolicy) []string {
	var warnings []string
	for _, rule := range rulesOf(p) {
		for i, peer := range rule.peers {
			if peer.IPBlock == nil {
				continue
			}
			path := rule.path.Child(rule.side).Index(i).Child("ipBlock")
			warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("cidr"), peer.IPBlock.CIDR)...)
			for n, except := range peer.IPBlock.Except {
				warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("except").Index(n), except)...)
			}
		}
	}
	return warnings
}
