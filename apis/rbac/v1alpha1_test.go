package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
)

func TestSubjectsOfV1alpha1(t *testing.T) {
	const version, group = "rbac.authorization.k8s.io/v1alpha1", "rbac.authorization.k8s.io"
	everyUser := rbacv1.Subject{Kind: "Group", APIGroup: group, Name: "system:authenticated"}
	in := rbacv1alpha1.RoleBinding{Subjects: []rbacv1alpha1.Subject{
		{Kind: "User", APIVersion: version, Name: "*"},
		{Kind: "User", Name: "*"},
		{Kind: "User", Name: "jane"},
		{Kind: "Group", APIVersion: version, Name: "*"},
		{Kind: "ServiceAccount", APIVersion: "v1", Namespace: "default", Name: "*"},
	}}
	want := []rbacv1.Subject{
		everyUser,
		everyUser,
		{Kind: "User", APIGroup: group, Name: "jane"},
		{Kind: "Group", APIGroup: group, Name: "*"},
		{Kind: "ServiceAccount", Namespace: "default", Name: "*"},
	}
	var out rbacv1.RoleBinding
	if err := roleBindingFromV1alpha1(&in, &out); err != nil || !slices.Equal(out.Subjects, want) {
		t.Errorf("%v, %+v, want %+v", err, out.Subjects, want)
	}
}
