package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var roleBindings = resource.Type[*rbacv1.RoleBinding]{
	Name: "rolebindings", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[rbacv1.RoleBinding, rbacv1beta1.RoleBinding](),
		resource.Convert(roleBindingFromV1alpha1, roleBindingToV1alpha1),
	},
	NameRule: resource.PathSegmentName,
	Default:  func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) },
	Validate: func(b *rbacv1.RoleBinding) field.ErrorList {
		return append(validateRoleRef(b.RoleRef, "Role", "ClusterRole"), validateSubjects(b.Subjects, true)...)
	},
	ValidateUpdate: func(b, old *rbacv1.RoleBinding) field.ErrorList { return validateSameRole(b.RoleRef, old.RoleRef) },
	CreateOnUpdate: true,
	Columns: bindingColumns("roleBinding", rbacv1.RoleBinding{}.SwaggerDoc()["roleRef"],
		func(b *rbacv1.RoleBinding) (rbacv1.RoleRef, []rbacv1.Subject) { return b.RoleRef, b.Subjects }),
}
