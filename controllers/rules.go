package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/controller"
)

// User is as whom the controllers come to the API server.
const User = "system:kube-controller-manager"

// Rules are all that User may do: what each controller declares, whether it is
// picked or not, events and the lease.
func Rules() ([]rbacv1.PolicyRule, error) {
	kinds := apis.Kinds()
	scheme := apis.NewExternalScheme(kinds)
	names := map[schema.GroupKind]string{}
	for _, k := range kinds {
		names[k.Hub.GroupKind()] = k.Name
	}
	rules := []rbacv1.PolicyRule{
		controller.Can("", []string{"events"}, []string{"create", "patch", "update"}),
		controller.Can("coordination.k8s.io", []string{"leases"}, []string{"create", "get", "update"}),
	}
	for _, c := range all() {
		for _, obj := range c.Reads {
			gvk, err := apiutil.GVKForObject(obj, scheme)
			if err != nil {
				return nil, fmt.Errorf("controller %s reads %T: %w", c.Name, obj, err)
			}
			name, ok := names[gvk.GroupKind()]
			if !ok {
				return nil, fmt.Errorf("controller %s reads %s, which is not declared", c.Name, gvk.GroupKind())
			}
			rules = append(rules, controller.Can(gvk.Group, []string{name}, []string{"get", "list", "watch"}))
		}
		rules = append(rules, c.Writes...)
	}
	return rules, nil
}

// eventSource is who says what concerns the manager itself.
func eventSource() corev1.EventSource { return corev1.EventSource{Component: userAgent} }
