package bootstrap

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/release"
)

// Create writes a new object, as a typed client of the newest version would. It returns
// the error AlreadyExists if there is one of its name.
type Create func(ctx context.Context, obj runtime.Object) error

// RolesStep returns the step of the mode RBAC that writes the default roles of a release
// and their bindings. It runs once at the start: missing rules and subjects are added,
// further ones stay, and so does everything with the annotation
// rbac.authorization.kubernetes.io/autoupdate=false. on reports which feature gates of the
// release are on.
func RolesStep(client kubernetes.Interface, create Create, await func(context.Context, []authorization.DefaultRole), of release.Release, on func(gate string) bool) Step {
	return Step{Name: "rbac/bootstrap-roles", Ensure: func(ctx context.Context) error {
		roles, err := authorization.DefaultRoles(of, on)
		if err != nil {
			return err
		}
		stored, err := listRoles(ctx, client)
		if err != nil {
			return err
		}
		err = each(ctx, roles, func(ctx context.Context, role authorization.DefaultRole) error {
			s := storedRoles{listedObjects: stored, create: func(obj runtime.Object) error { return create(ctx, obj) }}
			write := s.ensureClusterRole
			if role.Namespace != "" {
				write = s.ensureRole
			}
			if err := write(role); err != nil {
				return fmt.Errorf("ensure role %s: %w", role.Name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		seen, cancel := context.WithTimeout(ctx, awaitTimeout)
		defer cancel()
		await(seen, roles)
		return nil
	}}
}

// awaitTimeout bounds how long a start waits until the authorizer has seen the default roles.
const awaitTimeout = 10 * time.Second

// defaultMeta returns the metadata of a default role or of its binding.
func defaultMeta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
	for k, v := range labels {
		m.Labels[k] = v
	}
	return m
}

func (s storedRoles) ensureClusterRole(role authorization.DefaultRole) error {
	wanted := &rbacv1.ClusterRole{ObjectMeta: defaultMeta("", role.Name, role.Labels), Rules: role.Rules, AggregationRule: role.Aggregation}
	binding := reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &rbacv1.ClusterRoleBinding{
		ObjectMeta: defaultMeta("", role.Binding, nil), Subjects: role.Subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}}
	return ensure(role,
		reconciliation.ReconcileRoleOptions{
			Role:   reconciliation.ClusterRoleRuleOwner{ClusterRole: wanted},
			Client: listedRoles{reconciliation.ClusterRoleModifier{Client: s.client.RbacV1().ClusterRoles()}, s.create, s.clusterRole},
		},
		reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: binding,
			Client:      listedBindings{reconciliation.ClusterRoleBindingClientAdapter{Client: s.client.RbacV1().ClusterRoleBindings()}, s.create, s.clusterRoleBinding},
		})
}

func (s storedRoles) ensureRole(role authorization.DefaultRole) error {
	wanted := &rbacv1.Role{ObjectMeta: defaultMeta(role.Namespace, role.Name, role.Labels), Rules: role.Rules}
	binding := reconciliation.RoleBindingAdapter{RoleBinding: &rbacv1.RoleBinding{
		ObjectMeta: defaultMeta(role.Namespace, role.Binding, nil), Subjects: role.Subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}}
	namespaces := s.client.CoreV1().Namespaces()
	return ensure(role,
		reconciliation.ReconcileRoleOptions{
			Role:   reconciliation.RoleRuleOwner{Role: wanted},
			Client: listedRoles{reconciliation.RoleModifier{Client: s.client.RbacV1(), NamespaceClient: namespaces}, s.create, s.role},
		},
		reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: binding,
			Client:      listedBindings{reconciliation.RoleBindingClientAdapter{Client: s.client.RbacV1(), NamespaceClient: namespaces}, s.create, s.roleBinding},
		})
}

// ensure writes a role and then, if it has one, its binding.
func ensure(role authorization.DefaultRole, roles reconciliation.ReconcileRoleOptions, bindings reconciliation.ReconcileRoleBindingOptions) error {
	roles.Confirm, bindings.Confirm = true, true
	if !isCurrent(roles) {
		if _, err := roles.Run(); err != nil {
			return err
		}
	}
	if role.Binding == "" {
		return nil
	}
	_, err := bindings.Run()
	return err
}

// isCurrent reports whether the stored role is the wanted one, as at nearly each start. To find
// that out, the library compares each of its rules, verb by verb, with all rules.
func isCurrent(o reconciliation.ReconcileRoleOptions) bool {
	wanted := o.Role
	stored, err := o.Client.Get(wanted.GetNamespace(), wanted.GetName())
	return err == nil && equality.Semantic.DeepEqual(stored.GetRules(), wanted.GetRules()) &&
		equality.Semantic.DeepEqual(stored.GetAggregationRule(), wanted.GetAggregationRule()) &&
		hasAll(stored.GetLabels(), wanted.GetLabels()) && hasAll(stored.GetAnnotations(), wanted.GetAnnotations())
}

// hasAll reports whether a map has the entries of another one.
func hasAll(m, entries map[string]string) bool {
	for key, value := range entries {
		if has, ok := m[key]; !ok || has != value {
			return false
		}
	}
	return true
}
