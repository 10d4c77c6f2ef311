package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var clusterRoles = resource.Type[*rbacv1.ClusterRole]{
	Name:     "clusterroles",
	Versions: []resource.Version{resource.Alike[rbacv1.ClusterRole, rbacv1beta1.ClusterRole](), resource.Alike[rbacv1.ClusterRole, rbacv1alpha1.ClusterRole]()},
	NameRule: resource.PathSegmentName,
	Validate: func(r *rbacv1.ClusterRole) field.ErrorList {
		return append(validateRules(field.NewPath("rules"), r.Rules, false), validateAggregation(r.AggregationRule)...)
	},
	CreateOnUpdate: true,
}

func validateAggregation(rule *rbacv1.AggregationRule) field.ErrorList {
	if rule == nil {
		return nil
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(rule.ClusterRoleSelectors) == 0 {
		return field.ErrorList{field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")}
	}
	var errs field.ErrorList
	for i := range rule.ClusterRoleSelectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&rule.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{}, path.Index(i))...)
	}
	return errs
}
