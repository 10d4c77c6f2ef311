package controllers

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/controller"
)

// User is the user name of the controllers at the API server. It is not that of
// kube-controller-manager, whose default role allows more than the controllers declare.
const User = "system:svc-controller-manager"

// Rules returns all permissions of User: those of every controller, enabled or not,
// and those of the manager itself.
func Rules() ([]rbacv1.PolicyRule, error) {
	rules, names := OwnRules(), newResourceNames()
	for _, c := range All() {
		its, err := names.rulesOf(c)
		if err != nil {
			return nil, err
		}
		rules = append(rules, its...)
	}
	return rules, nil
}

// OwnRules returns the permissions of the manager itself: to record events, to write
// its lease, and to authenticate and authorize the clients of its metrics.
func OwnRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		controller.Can("", []string{"events"}, []string{"create", "patch", "update"}),
		controller.Can("coordination.k8s.io", []string{"leases"}, []string{"create"}),
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{leaseName}, Verbs: []string{"get", "update"}},
		controller.Can("authentication.k8s.io", []string{"tokenreviews"}, []string{"create"}),
		controller.Can("authorization.k8s.io", []string{"subjectaccessreviews"}, []string{"create"}),
		{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{"extension-apiserver-authentication"}, Verbs: []string{"get", "list", "watch"},
		},
	}
}

// RulesOf returns the permissions that a controller declares.
func RulesOf(c controller.Controller) ([]rbacv1.PolicyRule, error) {
	return newResourceNames().rulesOf(c)
}

// resourceNames knows the resources of Go types. To make it takes milliseconds.
type resourceNames struct {
	scheme *runtime.Scheme
	names  map[schema.GroupKind]string
}

func newResourceNames() resourceNames {
	n := resourceNames{scheme: apis.ExternalScheme(), names: map[schema.GroupKind]string{}}
	for _, k := range apis.Kinds() {
		n.names[k.Hub.GroupKind()] = k.Name
	}
	return n
}

// rulesOf returns the permissions that a controller declares.
func (n resourceNames) rulesOf(c controller.Controller) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for _, obj := range c.Reads {
		gvk, err := apiutil.GVKForObject(obj, n.scheme)
		if err != nil {
			return nil, fmt.Errorf("controller %s reads %T: %w", c.Name, obj, err)
		}
		name, ok := n.names[gvk.GroupKind()]
		if !ok {
			return nil, fmt.Errorf("controller %s reads %s, which is not declared", c.Name, gvk.GroupKind())
		}
		rules = append(rules, controller.Can(gvk.Group, []string{name}, []string{"get", "list", "watch"}))
	}
	return append(rules, c.Permissions...), nil
}
