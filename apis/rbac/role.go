package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var roles = resource.Type[*rbacv1.Role]{
	Name: "roles", Namespaced: true,
	Versions: []resource.Version{resource.Alike[rbacv1.Role, rbacv1beta1.Role](), resource.Alike[rbacv1.Role, rbacv1alpha1.Role]()},
	NameRule: resource.PathSegmentName,
	Validate: func(r *rbacv1.Role) field.ErrorList {
		return validateRules(field.NewPath("rules"), r.Rules, true)
	},
	CreateOnUpdate: true,
}

// validateRules validates the rules of a role or, not namespaced, a cluster role.
func validateRules(path *field.Path, rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range rules {
		errs = append(errs, validateRule(path.Index(i), rule, namespaced)...)
	}
	return errs
}

func validateRule(path *field.Path, rule rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value"))
	}
	if urls := rule.NonResourceURLs; len(urls) > 0 {
		if namespaced {
			errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), urls, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}
