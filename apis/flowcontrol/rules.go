package flowcontrol

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// validateRules validates who (subjects) doing what (rules) belongs to a flow.
func validateRules(path *field.Path, r *flowcontrolv1.PolicyRulesWithSubjects) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i, s := range r.Subjects {
		errs = append(errs, validateSubject(path.Child("subjects").Index(i), s)...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, rule := range r.ResourceRules {
		errs = append(errs, validateResourceRule(path.Child("resourceRules").Index(i), rule)...)
	}
	for i, rule := range r.NonResourceRules {
		errs = append(errs, validateNonResourceRule(path.Child("nonResourceRules").Index(i), rule)...)
	}
	return errs
}

// validateSubject requires exactly the member that the kind names.
func validateSubject(path *field.Path, s flowcontrolv1.Subject) field.ErrorList {
	members := []struct {
		kind     flowcontrolv1.SubjectKind
		name     string
		set      bool
		validate func(path *field.Path) field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil,
			func(path *field.Path) field.ErrorList { return validateServiceAccount(path, s.ServiceAccount) }},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil,
			func(path *field.Path) field.ErrorList { return requireName(path, s.User.Name) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil,
			func(path *field.Path) field.ErrorList { return requireName(path, s.Group.Name) }},
	}
	errs := resource.OneOf(path.Child("kind"), s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	if len(errs) > 0 {
		return errs
	}
	for _, m := range members {
		member := path.Child(m.name)
		switch {
		case m.kind == s.Kind && !m.set:
			errs = append(errs, field.Required(member, m.name+" is required when subject kind is '"+string(m.kind)+"'"))
		case m.kind == s.Kind:
			errs = append(errs, m.validate(member)...)
		case m.set:
			errs = append(errs, field.Forbidden(member, m.name+" is forbidden when subject kind is not '"+string(m.kind)+"'"))
		}
	}
	return errs
}

func requireName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return nil
}

func validateServiceAccount(path *field.Path, s *flowcontrolv1.ServiceAccountSubject) field.ErrorList {
	errs := requireName(path, s.Name)
	if s.Name != "" && s.Name != flowcontrolv1.NameAll {
		errs = append(errs, resource.Invalid(path.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, resource.Invalid(path.Child("namespace"), s.Namespace, apivalidation.ValidateNamespaceName(s.Namespace, false))...)
}

func validateResourceRule(path *field.Path, r flowcontrolv1.ResourcePolicyRule) field.ErrorList {
	errs := validateVerbs(path.Child("verbs"), r.Verbs)
	errs = append(errs, someOrAll(path.Child("apiGroups"), r.APIGroups, "resource rules must supply at least one api group", "api groups")...)
	errs = append(errs, someOrAll(path.Child("resources"), r.Resources, "resource rules must supply at least one resource", "resources")...)
	if r.ClusterScope && len(r.Namespaces) == 0 {
		return errs
	}
	namespaces := path.Child("namespaces")
	errs = append(errs, someOrAll(namespaces, r.Namespaces, "resource rules that are not cluster scoped must supply at least one namespace", "namespaces")...)
	if slices.Contains(r.Namespaces, flowcontrolv1.NamespaceEvery) {
		return errs
	}
	for i, ns := range r.Namespaces {
		for _, msg := range apivalidation.ValidateNamespaceName(ns, false) {
			errs = append(errs, field.Invalid(namespaces.Index(i), ns, "each member of this list must be '*' or a DNS-1123 label; "+msg))
		}
	}
	return errs
}

func validateNonResourceRule(path *field.Path, r flowcontrolv1.NonResourcePolicyRule) field.ErrorList {
	errs := validateVerbs(path.Child("verbs"), r.Verbs)
	urls := path.Child("nonResourceURLs")
	errs = append(errs, someOrAll(urls, r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs")...)
	if slices.Contains(r.NonResourceURLs, flowcontrolv1.NonResourceAll) {
		return errs
	}
	for i, url := range r.NonResourceURLs {
		if msg := urlPathFault(url); msg != "" {
			errs = append(errs, field.Invalid(urls.Index(i), url, msg))
		}
	}
	return errs
}

// verbs are what a rule may name besides '*'.
var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateVerbs(path *field.Path, given []string) field.ErrorList {
	errs := someOrAll(path, given, "verbs must contain at least one value", "verbs")
	if slices.Contains(given, flowcontrolv1.VerbAll) {
		return errs
	}
	for _, verb := range given {
		if !slices.Contains(verbs, verb) {
			return append(errs, field.NotSupported(path, given, verbs))
		}
	}
	return errs
}

// someOrAll requires at least one value, and '*' to stand alone.
func someOrAll(path *field.Path, values []string, required, plural string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, required)}
	case len(values) > 1 && slices.Contains(values, "*"):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+plural)}
	}
	return nil
}

// urlPathFault returns the problem of a URL path, "" if there is none.
func urlPathFault(path string) string {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case !strings.HasPrefix(path, "/"):
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}
