package authorization

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"

	"svc.dev/svc/internal/items"
)

// roleSource is where roles and bindings are read. The objects must not be
// modified.
type roleSource interface {
	role(ctx context.Context, namespace, name string) (*rbacv1.Role, error)
	clusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error)
	roleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error)
	clusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error)
}

// followed reads from informers.
type followed struct {
	roles    rbaclisters.RoleLister
	bindings rbaclisters.RoleBindingLister

	ofCluster         rbaclisters.ClusterRoleLister
	bindingsOfCluster rbaclisters.ClusterRoleBindingLister
}

func (f followed) role(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	return f.roles.Roles(namespace).Get(name)
}

func (f followed) clusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	return f.ofCluster.Get(name)
}

func (f followed) roleBindings(_ context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	return f.bindings.RoleBindings(namespace).List(labels.Everything())
}

func (f followed) clusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return f.bindingsOfCluster.List(labels.Everything())
}

// stored reads from the API.
type stored struct{ client rbacv1client.RbacV1Interface }

func (s stored) role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return s.client.Roles(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s stored) clusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	return s.client.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
}

func (s stored) roleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	list, err := s.client.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}

func (s stored) clusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	list, err := s.client.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}
