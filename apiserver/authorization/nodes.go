package authorization

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"svc.dev/svc/apiserver/authorization/node"
)

// Nodes returns the rules of nodes without the mode Node: those of Kubernetes' default
// role system:node. What pods refer to, every node may read.
func Nodes() Grant {
	grant := nodesThemselves()
	read := []string{"get", "list", "watch"}
	change := []string{"update", "patch"}
	grant.Own = append(grant.Own,
		can("coordination.k8s.io", []string{"leases"}, "update", "patch", "delete"),
		can("storage.k8s.io", []string{"csinodes"}, "update", "patch", "delete"))
	grant.Rules = append(grant.Rules,
		can("coordination.k8s.io", []string{"leases"}, "get", "create"),
		can("storage.k8s.io", []string{"csinodes"}, "get", "create"),

		// What its pods refer to.
		can("", []string{"secrets", "configmaps"}, read...),
		can("", []string{"serviceaccounts/token"}, "create"),
		can("", []string{"serviceaccounts", "persistentvolumeclaims", "persistentvolumes"}, "get"),
		can("", []string{"persistentvolumeclaims/status"}, append(change, "get")...),
		can("storage.k8s.io", []string{"volumeattachments"}, "get"),

		// The devices of its pods; its kubelet removes the slices of a driver that is gone.
		can("resource.k8s.io", []string{"resourceclaims"}, "get"),
		can("resource.k8s.io", []string{"resourceslices"}, "deletecollection"))
	return grant
}

// nodesThemselves returns the rules of nodes, svc's own agents and kubelets, that do not
// depend on their pods. A node updates only its own Node: the API server connects to
// the addresses that a Node reports, so a node that could update another one could
// redirect those connections to itself. The admission plugin NodeRestriction restricts
// nodes to their own pods.
func nodesThemselves() Grant {
	read := []string{"get", "list", "watch"}
	change := []string{"update", "patch"}
	return Grant{Group: user.NodesGroup, OwnPrefix: node.UserPrefix, Own: []rbacv1.PolicyRule{
		can("", []string{"nodes", "nodes/status"}, change...),
	}, Rules: append([]rbacv1.PolicyRule{
		// Authentication and authorization of clients of the node's port.
		can("authentication.k8s.io", []string{"tokenreviews"}, "create"),
		can("authorization.k8s.io", []string{"subjectaccessreviews", "localsubjectaccessreviews"}, "create"),

		// The node itself.
		can("", []string{"nodes"}, "create", "get", "list", "watch"),
		can("certificates.k8s.io", []string{"certificatesigningrequests"}, "create", "get", "list", "watch"),

		// Its pods; those that it creates are mirrors of its static pods.
		can("", []string{"pods"}, "get", "list", "watch", "create", "delete"),
		can("", []string{"pods/status"}, change...),
		can("", []string{"pods/eviction"}, "create"),
		can("", []string{"events"}, "create", "update", "patch"),
		can("events.k8s.io", []string{"events"}, "create", "update", "patch"),

		// What all pods need.
		can("", []string{"services"}, read...),
		can("", []string{"endpoints"}, "get"),
		can("discovery.k8s.io", []string{"endpointslices"}, "list", "watch"), // of the service proxy
		can("storage.k8s.io", []string{"csidrivers"}, read...),
		can("node.k8s.io", []string{"runtimeclasses"}, read...),
	}, slices.Concat(OfCertificates(), OfNetworkPolicies())...)}
}

// OfCertificates returns the rules by which a node shows trust bundles and certificates in
// the volumes of pods. Kubernetes' role system:node has them with the feature gates
// ClusterTrustBundle and PodCertificateRequest, which later releases than 1.28 have.
func OfCertificates() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		can("certificates.k8s.io", []string{"clustertrustbundles"}, "get", "list", "watch"),
		can("certificates.k8s.io", []string{"podcertificaterequests"}, "create", "get", "list", "watch"),
	}
}

// OfNetworkPolicies returns the rules by which a node enforces network policies, besides
// those about pods: in Kubernetes they are not those of nodes, but of the service account
// of a network plugin.
func OfNetworkPolicies() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		can("networking.k8s.io", []string{"networkpolicies"}, "list", "watch"),
		can("", []string{"namespaces"}, "list", "watch"), // whose labels policies select
	}
}

// Joining returns the rules by which nodes join as in kubeadm's clusters: members of the
// group, whose bootstrap tokens are for joining, get the client certificate of a node,
// and a node renews its own.
func Joining(group string) Grants {
	create := func(subresource string) rbacv1.PolicyRule {
		return can("certificates.k8s.io", []string{"certificatesigningrequests/" + subresource}, "create")
	}
	requests := can("certificates.k8s.io", []string{"certificatesigningrequests"}, "create", "get", "list", "watch")
	return Grants{
		{Group: group, Rules: []rbacv1.PolicyRule{requests, create("nodeclient")}},
		{Group: user.NodesGroup, Rules: []rbacv1.PolicyRule{create("selfnodeclient")}},
	}
}

// ToNodes returns the rules that the API server's own user has at the ports of
// nodes: those of Kubernetes' default role system:kubelet-api-admin.
func ToNodes(name string) Grant {
	return Grant{User: name, Rules: []rbacv1.PolicyRule{
		can("", []string{"nodes"}, "get", "list", "watch", "proxy"),
		can("", []string{
			"nodes/proxy", "nodes/metrics", "nodes/stats", "nodes/log",
			"nodes/pods", "nodes/healthz", "nodes/configz", // the fine-grained ones of KEP-2862
		}, rbacv1.VerbAll),
	}}
}

func can(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}
