package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// completeFamilies fills in ipFamilyPolicy and ipFamilies, and drops the
// second address of a service that becomes single-stack. configured are the
// families of the server's ranges, the primary first; old is nil on create. It
// returns errors if the policy and the families do not fit the server's families
// or those of the old service.
func completeFamilies(s, old *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	if !needsClusterIP(s) || staysAsItPreferred(s, old) {
		return nil
	}
	completePolicy(s, old)
	var errs field.ErrorList
	if old != nil {
		errs = dropSecondFamily(s, old)
	}
	errs = append(errs, policyAllowsBoth(s)...)
	if errs = append(errs, inferFamilies(s, configured)...); len(errs) > 0 {
		return errs
	}
	// The endpoints of a headless service without selector are written by clients,
	// so it may have families that the server does not have.
	if free := headless(s) && len(s.Spec.Selector) == 0; !free {
		if errs := familiesAreConfigured(s, configured); len(errs) > 0 {
			return errs
		}
		addFamilies(s, configured, len(configured) > 1)
	} else {
		addFamilies(s, configured, true)
	}
	return nil
}

// staysAsItPreferred reports whether the service keeps its families: one with
// PreferDualStack must not change because the server's families have changed.
func staysAsItPreferred(s, old *corev1.Service) bool {
	return old != nil && old.Spec.Type == s.Spec.Type &&
		hasPolicy(s, corev1.IPFamilyPolicyPreferDualStack) &&
		(old.Spec.IPFamilyPolicy == nil || hasPolicy(old, corev1.IPFamilyPolicyPreferDualStack)) &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

func hasPolicy(s *corev1.Service, policy corev1.IPFamilyPolicy) bool {
	return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == policy
}

// completePolicy keeps a policy on update: a service becomes single-stack or
// dual-stack only when it says so.
func completePolicy(s, old *corev1.Service) {
	switch {
	case s.Spec.IPFamilyPolicy != nil:
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		s.Spec.IPFamilyPolicy = new(*old.Spec.IPFamilyPolicy)
	case s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0:
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	default:
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
}

// dropSecondFamily drops the second family and address when the policy becomes
// SingleStack. Without that, their removal is an error.
func dropSecondFamily(s, old *corev1.Service) field.ErrorList {
	ips, families := &s.Spec.ClusterIPs, &s.Spec.IPFamilies
	if hasPolicy(s, corev1.IPFamilyPolicySingleStack) {
		if slices.Equal(*ips, old.Spec.ClusterIPs) && len(*ips) > 1 {
			*ips = (*ips)[:1]
		}
		if slices.Equal(*families, old.Spec.IPFamilies) && len(*families) > 1 {
			*families = (*families)[:1]
		}
		return nil
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name     string
		len, was int
	}{{"cluster IP", len(*ips), len(old.Spec.ClusterIPs)}, {"IP family", len(*families), len(old.Spec.IPFamilies)}} {
		if f.len > 0 && f.len < f.was {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
				fmt.Sprintf("must be 'SingleStack' to release the secondary %s", f.name)))
		}
	}
	return errs
}

func policyAllowsBoth(s *corev1.Service) field.ErrorList {
	if !hasPolicy(s, corev1.IPFamilyPolicySingleStack) {
		return nil
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		len  int
	}{{"cluster IPs", len(s.Spec.ClusterIPs)}, {"IP families", len(s.Spec.IPFamilies)}} {
		if f.len > 1 {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
				fmt.Sprintf("must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified", f.name)))
		}
	}
	return errs
}

// inferFamilies adds the families of addresses for which the client named none.
func inferFamilies(s *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	if headless(s) {
		return nil
	}
	var errs field.ErrorList
	for i := len(s.Spec.IPFamilies); i < len(s.Spec.ClusterIPs); i++ {
		family := familyOf(s.Spec.ClusterIPs[i])
		if !slices.Contains(configured, family) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(i), s.Spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
	return errs
}

func familiesAreConfigured(s *corev1.Service, configured []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	if hasPolicy(s, corev1.IPFamilyPolicyRequireDualStack) && len(configured) < 2 {
		errs = append(errs, field.Invalid(specPath.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range s.Spec.IPFamilies {
		if !slices.Contains(configured, family) {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// addFamilies adds the server's primary family to a service without families. If
// both is set and the policy is not SingleStack, it adds the second family.
func addFamilies(s *corev1.Service, configured []corev1.IPFamily, both bool) {
	if len(s.Spec.IPFamilies) == 0 && len(configured) > 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{configured[0]}
	}
	if len(s.Spec.IPFamilies) != 1 || !both || hasPolicy(s, corev1.IPFamilyPolicySingleStack) {
		return
	}
	if s.Spec.IPFamilies[0] == corev1.IPv4Protocol {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
	} else {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv4Protocol)
	}
}
