package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// In v1alpha1 a subject has an apiVersion in place of an apiGroup.

func roleBindingFromV1alpha1(in *rbacv1alpha1.RoleBinding, out *rbacv1.RoleBinding) error {
	resource.CopyFields(in, out)
	return subjectsFromV1alpha1(in.Subjects, out.Subjects)
}

func roleBindingToV1alpha1(in *rbacv1.RoleBinding, out *rbacv1alpha1.RoleBinding) error {
	resource.CopyFields(in, out)
	subjectsToV1alpha1(in.Subjects, out.Subjects)
	return nil
}

func clusterRoleBindingFromV1alpha1(in *rbacv1alpha1.ClusterRoleBinding, out *rbacv1.ClusterRoleBinding) error {
	resource.CopyFields(in, out)
	return subjectsFromV1alpha1(in.Subjects, out.Subjects)
}

func clusterRoleBindingToV1alpha1(in *rbacv1.ClusterRoleBinding, out *rbacv1alpha1.ClusterRoleBinding) error {
	resource.CopyFields(in, out)
	subjectsToV1alpha1(in.Subjects, out.Subjects)
	return nil
}

// subjectsFromV1alpha1 sets the groups of subjects whose other fields are copied. The
// user "*" of v1alpha1 stands for all authenticated users, whatever the subject's version is
// (kubernetes/pkg/apis/rbac/v1alpha1).
func subjectsFromV1alpha1(in []rbacv1alpha1.Subject, out []rbacv1.Subject) error {
	for i := range in {
		switch s := &out[i]; s.Kind {
		case rbacv1.ServiceAccountKind:
			s.APIGroup = ""
		case rbacv1.UserKind, rbacv1.GroupKind:
			s.APIGroup = rbacv1.GroupName
			if s.Kind == rbacv1.UserKind && s.Name == "*" {
				s.Kind, s.Name = rbacv1.GroupKind, "system:authenticated"
			}
		default:
			gv, err := schema.ParseGroupVersion(in[i].APIVersion)
			if err != nil {
				return err
			}
			s.APIGroup = gv.Group
		}
	}
	return nil
}

func subjectsToV1alpha1(in []rbacv1.Subject, out []rbacv1alpha1.Subject) {
	for i := range in {
		switch {
		case in[i].Kind == rbacv1.ServiceAccountKind && in[i].APIGroup == "":
			out[i].APIVersion = "v1"
		case in[i].APIGroup == rbacv1.GroupName:
			out[i].APIVersion = rbacv1alpha1.SchemeGroupVersion.String()
		default:
			out[i].APIVersion = in[i].APIGroup
		}
	}
}
