package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var clusterRoleBindings = resource.Type[*rbacv1.ClusterRoleBinding]{
	Name: "clusterrolebindings",
	Versions: []resource.Version{
		resource.Alike[rbacv1.ClusterRoleBinding, rbacv1beta1.ClusterRoleBinding](),
		resource.Convert(clusterRoleBindingFromV1alpha1, clusterRoleBindingToV1alpha1),
	},
	NameRule: resource.PathSegmentName,
	Default:  func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
	Validate: func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
		return append(validateRoleRef(b.RoleRef, "ClusterRole"), validateSubjects(b.Subjects, false)...)
	},
	ValidateUpdate: func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
		return validateSameRole(b.RoleRef, old.RoleRef)
	},
	CreateOnUpdate: true,
	Columns: bindingColumns("clusterRoleBinding", rbacv1.ClusterRoleBinding{}.SwaggerDoc()["roleRef"],
		func(b *rbacv1.ClusterRoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
}
