package bootstrap

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"svc.dev/svc/apiserver/authorization"
)

// RolesStep returns the step of the mode RBAC that writes the default cluster roles
// and binds them to groups. It runs once at the start: changes of an administrator
// stay until the next start, or always with the annotation
// rbac.authorization.kubernetes.io/autoupdate=false.
func RolesStep(client rbacv1client.RbacV1Interface) Step {
	return Step{Name: "rbac/bootstrap-roles", Ensure: func(ctx context.Context) error {
		return each(ctx, authorization.DefaultRoles(), func(_ context.Context, role authorization.DefaultRole) error {
			if err := ensureRole(client, role); err != nil {
				return fmt.Errorf("ensure cluster role %s: %w", role.Name, err)
			}
			return nil
		})
	}}
}

func ensureRole(client rbacv1client.RbacV1Interface, role authorization.DefaultRole) error {
	about := metav1.ObjectMeta{
		Name:        role.Name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: about,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	for _, group := range role.Groups {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	roles := reconciliation.ReconcileRoleOptions{
		Role:    reconciliation.ClusterRoleRuleOwner{ClusterRole: &rbacv1.ClusterRole{ObjectMeta: about, Rules: role.Rules}},
		Client:  reconciliation.ClusterRoleModifier{Client: client.ClusterRoles()},
		Confirm: true,
	}
	if _, err := roles.Run(); err != nil {
		return err
	}
	bindings := reconciliation.ReconcileRoleBindingOptions{
		RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding},
		Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: client.ClusterRoleBindings()},
		Confirm:     true,
	}
	_, err := bindings.Run()
	return err
}
