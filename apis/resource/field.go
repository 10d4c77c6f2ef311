package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fill sets a field that is nil, for example to a default.
func Fill[V any](at **V, value V) {
	if *at == nil {
		v := value // a copy, so that memory is allocated only if the field is filled
		*at = &v
	}
}

// FillEmpty sets a field that is empty, for example to a default.
func FillEmpty[V comparable](at *V, value V) {
	var empty V
	if *at == empty {
		*at = value
	}
}

// OneOf requires a value from an enumeration. The message lists the supported
// values in the order given; Kubernetes sorts them.
func OneOf[V ~string](path *field.Path, value V, supported ...V) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

// Invalid returns a field error for each message about a value: the validation
// functions of apimachinery return messages.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// PathSegmentName is the name rule of kinds whose names only have to be a path
// segment of a URL, for example roles.
func PathSegmentName(name string, _ bool) []string {
	return content.IsPathSegmentName(name)
}

// unqualifiedFinalizers are the finalizers that need no domain.
var unqualifiedFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// FinalizerName requires a finalizer that is one of Kubernetes' own or has the
// domain of its controller.
func FinalizerName(path *field.Path, name string) field.ErrorList {
	if strings.Contains(name, "/") || slices.Contains(unqualifiedFinalizers, name) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// IP requires an IP address as Kubernetes writes one in fields older than its
// strict rule: without leading zeros, and not IPv4 in IPv6's form.
func IP(path *field.Path, value string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, nil)
}

// CIDR is IP for an address range.
func CIDR(path *field.Path, value string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, value, true, nil)
}

// ReachableIP refuses addresses that mean nothing on another machine.
func ReachableIP(path *field.Path, value string) field.ErrorList {
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be a valid IP address")}
	}
	switch {
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("may not be unspecified (%s)", value))}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

// Required requires a value that is not empty.
func Required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// RequiredOneOf requires a value that is not empty and is one of an enumeration.
func RequiredOneOf[V ~string](path *field.Path, value V, supported ...V) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return OneOf(path, value, supported...)
}

// OptionalOneOf requires that a value, if it is set, is one of an enumeration.
func OptionalOneOf[V ~string](path *field.Path, value *V, supported ...V) field.ErrorList {
	if value == nil {
		return nil
	}
	return OneOf(path, *value, supported...)
}

// Unique requires that a value is not in seen, and adds it.
func Unique(path *field.Path, value string, seen sets.Set[string]) field.ErrorList {
	if seen.Has(value) {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen.Insert(value)
	return nil
}
