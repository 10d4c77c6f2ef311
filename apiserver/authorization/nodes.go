package authorization

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// nodeUserPrefix begins the name of the user that a node is:
// https://kubernetes.io/docs/reference/access-authn-authz/node
const nodeUserPrefix = "system:node:"

// Nodes is what nodes may do at the API server, svc's own and kubelets: the
// default role system:node of Kubernetes. What a node says of itself, it may
// change of itself alone: otherwise one could send the API server, which speaks
// to the address that a node names, from another node to itself. Whose pods
// they are, the admission plugin NodeRestriction looks at; what pods refer to,
// every node may read.
func Nodes() Grant {
	read := []string{"get", "list", "watch"}
	change := []string{"update", "patch"}
	return Grant{Group: user.NodesGroup, OwnPrefix: nodeUserPrefix, Own: []rbacv1.PolicyRule{
		can("", []string{"nodes", "nodes/status"}, change...),
		can("coordination.k8s.io", []string{"leases"}, "update", "patch", "delete"),
		can("storage.k8s.io", []string{"csinodes"}, "update", "patch", "delete"),
	}, Rules: []rbacv1.PolicyRule{
		// Who comes to the node's port, and what he may do there.
		can("authentication.k8s.io", []string{"tokenreviews"}, "create"),
		can("authorization.k8s.io", []string{"subjectaccessreviews", "localsubjectaccessreviews"}, "create"),

		// The node itself.
		can("", []string{"nodes"}, "create", "get", "list", "watch"),
		can("coordination.k8s.io", []string{"leases"}, "get", "create"),
		can("storage.k8s.io", []string{"csinodes"}, "get", "create"),
		can("certificates.k8s.io", []string{"certificatesigningrequests"}, "create", "get", "list", "watch"),

		// Its pods; those that it makes are mirrors of its static ones.
		can("", []string{"pods"}, "get", "list", "watch", "create", "delete"),
		can("", []string{"pods/status"}, change...),
		can("", []string{"pods/eviction"}, "create"),
		can("", []string{"events"}, "create", "update", "patch"),
		can("events.k8s.io", []string{"events"}, "create", "update", "patch"),

		// What its pods refer to.
		can("", []string{"services", "secrets", "configmaps"}, read...),
		can("", []string{"serviceaccounts/token"}, "create"),
		can("", []string{"serviceaccounts", "persistentvolumeclaims", "persistentvolumes", "endpoints"}, "get"),
		can("", []string{"persistentvolumeclaims/status"}, "get", "update", "patch"),
		can("storage.k8s.io", []string{"volumeattachments"}, "get"),
		can("storage.k8s.io", []string{"csidrivers"}, read...),
		can("node.k8s.io", []string{"runtimeclasses"}, read...),
	}}
}

// ToNodes is what who comes from the API server may do at the ports of nodes
// that ask it: the default role system:kubelet-api-admin of Kubernetes.
func ToNodes(name string) Grant {
	return Grant{User: name, Rules: []rbacv1.PolicyRule{
		can("", []string{"nodes"}, "get", "list", "watch", "proxy"),
		can("", []string{
			"nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log",
			"nodes/pods", "nodes/healthz", "nodes/configz", // finer ones of KEP-2862
		}, rbacv1.VerbAll),
	}}
}

func can(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}
