package bootstrap

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// storedRoles brings roles and bindings to the desired state.
type storedRoles struct {
	*listedObjects
	create func(obj runtime.Object) error
}

// listedObjects are the roles and bindings that are stored. Four lists replace two reads
// for each of the default roles, of which there are more than seventy.
type listedObjects struct {
	client              kubernetes.Interface
	clusterRoles        byName[rbacv1.ClusterRole]
	roles               byName[rbacv1.Role]
	clusterRoleBindings byName[rbacv1.ClusterRoleBinding]
	roleBindings        byName[rbacv1.RoleBinding]
}

func listRoles(ctx context.Context, client kubernetes.Interface) (*listedObjects, error) {
	rbac, all := client.RbacV1(), cachedList()
	clusterRoles, err := rbac.ClusterRoles().List(ctx, all)
	if err != nil {
		return nil, err
	}
	roles, err := rbac.Roles(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return nil, err
	}
	clusterRoleBindings, err := rbac.ClusterRoleBindings().List(ctx, all)
	if err != nil {
		return nil, err
	}
	roleBindings, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, all)
	if err != nil {
		return nil, err
	}
	return &listedObjects{
		client:              client,
		clusterRoles:        indexByName(clusterRoles.Items),
		roles:               indexByName(roles.Items),
		clusterRoleBindings: indexByName(clusterRoleBindings.Items),
		roleBindings:        indexByName(roleBindings.Items),
	}, nil
}

// byName is an index of objects by namespace and name.
type byName[T any] map[types.NamespacedName]*T

func indexByName[T any, P interface {
	*T
	metav1.Object
}](items []T) byName[T] {
	index := make(byName[T], len(items))
	for i := range items {
		var object P = &items[i]
		index[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] = &items[i]
	}
	return index
}

// get returns an object, or the error NotFound.
func (i byName[T]) get(namespace, name string) (*T, error) {
	object, found := i[types.NamespacedName{Namespace: namespace, Name: name}]
	if !found {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName}, name)
	}
	return object, nil
}

// listedRoles is a client of the reconciliation that reads roles from a list, creates them
// with a function, and updates them with the API. If an object has been created since the
// list, the creation fails, and the step lists again.
type listedRoles struct {
	reconciliation.RuleOwnerModifier
	create func(obj runtime.Object) error
	get    func(namespace, name string) (reconciliation.RuleOwner, error)
}

// Get implements reconciliation.RuleOwnerModifier.
func (l listedRoles) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	return l.get(namespace, name)
}

// Create implements reconciliation.RuleOwnerModifier.
func (l listedRoles) Create(role reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	return role, l.create(role.GetObject())
}

// listedBindings is the same of bindings.
type listedBindings struct {
	reconciliation.RoleBindingModifier
	create func(obj runtime.Object) error
	get    func(namespace, name string) (reconciliation.RoleBinding, error)
}

// Get implements reconciliation.RoleBindingModifier.
func (l listedBindings) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	return l.get(namespace, name)
}

// Create implements reconciliation.RoleBindingModifier.
func (l listedBindings) Create(binding reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return binding, l.create(binding.GetObject())
}

func (s *listedObjects) clusterRole(namespace, name string) (reconciliation.RuleOwner, error) {
	role, err := s.clusterRoles.get(namespace, name)
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, err
}

func (s *listedObjects) role(namespace, name string) (reconciliation.RuleOwner, error) {
	role, err := s.roles.get(namespace, name)
	return reconciliation.RoleRuleOwner{Role: role}, err
}

func (s *listedObjects) clusterRoleBinding(namespace, name string) (reconciliation.RoleBinding, error) {
	binding, err := s.clusterRoleBindings.get(namespace, name)
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, err
}

func (s *listedObjects) roleBinding(namespace, name string) (reconciliation.RoleBinding, error) {
	binding, err := s.roleBindings.get(namespace, name)
	return reconciliation.RoleBindingAdapter{RoleBinding: binding}, err
}
