package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// validateNamedRule validates a rule of a policy, which may also name objects.
func validateNamedRule(path *field.Path, r *admissionv1.NamedRuleWithOperations) field.ErrorList {
	var errs field.ErrorList
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		errs = append(errs, resource.Invalid(at, name, content.IsPathSegmentName(name))...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, validateRule(path, &r.RuleWithOperations)...)
}

func validateRule(path *field.Path, r *admissionv1.RuleWithOperations) field.ErrorList {
	errs := someOrAll(path.Child("operations"), r.Operations, "operations")
	for i, op := range r.Operations {
		errs = append(errs, resource.OneOf(path.Child("operations").Index(i), op,
			admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	errs = append(errs, someOrAll(path.Child("apiGroups"), r.APIGroups, "API groups")...)
	errs = append(errs, someOrAll(path.Child("apiVersions"), r.APIVersions, "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(path.Child("resources"), r.Resources)...)
	if r.Scope != nil {
		errs = append(errs, resource.OneOf(path.Child("scope"), *r.Scope, admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope)...)
	}
	return errs
}

// someOrAll requires at least one value, and '*' to stand alone.
func someOrAll[S ~string](path *field.Path, values []S, plural string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+plural)}
	}
	return nil
}

// validateResources validates a list of resources ("pods", "pods/status",
// "pods/*", "*/scale", "*" for all resources without their subresources, "*/*"
// for everything): an entry must not repeat what an earlier one covers.
func validateResources(path *field.Path, resources []string) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	var wholeResources, wholeSubresources []string // of "x/*" and "*/x" so far
	lastBare := ""
	for i, entry := range resources {
		if entry == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		res, sub, slash := strings.Cut(entry, "/")
		if !slash {
			lastBare = entry
			continue
		}
		if slices.Contains(wholeResources, res) {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", res, entry)))
		}
		if slices.Contains(wholeSubresources, sub) {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, entry)))
		}
		if sub == "*" {
			wholeResources = append(wholeResources, res)
		}
		if res == "*" {
			wholeSubresources = append(wholeSubresources, sub)
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	// Kubernetes examines the last entry without a slash only, and manifests
	// that list '*' last rely on it.
	if slices.Contains(resources, "*") && lastBare != "*" {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
