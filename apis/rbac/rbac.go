// Package rbac declares the kinds of the rbac.authorization.k8s.io group.
package rbac

import "svc.dev/svc/apis/resource"

// Kinds returns the kinds of the rbac.authorization.k8s.io group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		clusterRoles,
		clusterRoleBindings,
		roles,
		roleBindings,
	}
}
