package rbac

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// defaultBinding sets the API groups of the role reference and the subjects.
func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// validateRoleRef validates a reference to a role of one of the kinds.
func validateRoleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	path := field.NewPath("roleRef")
	errs := resource.OneOf(path.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)
	errs = append(errs, resource.OneOf(path.Child("kind"), ref.Kind, kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), ""))
	}
	return append(errs, resource.Invalid(path.Child("name"), ref.Name, resource.PathSegmentName(ref.Name, false))...)
}

// validateSameRole forbids changes of the role: a user who may bind one role must
// not be able to bind another by an update.
func validateSameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}

// validateSubjects validates the subjects of a binding; in a namespaced one a
// service account may leave its namespace out.
func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, s := range subjects {
		errs = append(errs, validateSubject(field.NewPath("subjects").Index(i), s, namespaced)...)
	}
	return errs
}

func validateSubject(path *field.Path, s rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, resource.Invalid(path.Child("name"), s.Name, apivalidation.ValidateServiceAccountName(s.Name, false))...)
		}
		errs = append(errs, resource.OneOf(path.Child("apiGroup"), s.APIGroup, "")...)
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(path.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, resource.OneOf(path.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}

// bindingColumns returns the columns of a kind of binding; what is its name in
// descriptions.
func bindingColumns[T resource.Object](what, roleDoc string, binding func(T) (rbacv1.RoleRef, []rbacv1.Subject)) []resource.Column[T] {
	subjects := func(name, kind string) resource.Column[T] {
		return resource.Column[T]{Name: name, Description: name + " in the " + what, Value: func(obj T) any {
			_, all := binding(obj)
			return strings.Join(subjectNames(all, kind), ", ")
		}}
	}
	return append([]resource.Column[T]{
		resource.Name[T](),
		{Name: "Role", Description: roleDoc, Value: func(obj T) any {
			ref, _ := binding(obj)
			return ref.Kind + "/" + ref.Name
		}},
		resource.Age[T](),
	}, resource.Wide(
		subjects("Users", rbacv1.UserKind),
		subjects("Groups", rbacv1.GroupKind),
		subjects("ServiceAccounts", rbacv1.ServiceAccountKind),
	)...)
}

// subjectNames returns the names of the subjects of one kind, those of service
// accounts with their namespaces.
func subjectNames(subjects []rbacv1.Subject, kind string) []string {
	var names []string
	for _, s := range subjects {
		switch {
		case s.Kind != kind:
		case kind == rbacv1.ServiceAccountKind:
			names = append(names, s.Namespace+"/"+s.Name)
		default:
			names = append(names, s.Name)
		}
	}
	return names
}
