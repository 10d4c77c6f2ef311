package authorization

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestNodesMayDoExactlyWhatANodeAgentNeeds(t *testing.T) {
	node := &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	nameless := &user.DefaultInfo{Name: "system:nodes-of-old", Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	server := &user.DefaultInfo{Name: "api-server", Groups: []string{user.AllAuthenticated}}
	grants := Grants{Nodes(), ToNodes(server.Name)}
	for _, tc := range []struct {
		who                                *user.DefaultInfo
		verb, group, resource, subresource string
		name                               string // of the object
		allowed                            bool
	}{
		{node, "create", "", "nodes", "", "", true},
		{node, "patch", "", "nodes", "status", "a", true},
		{node, "update", "coordination.k8s.io", "leases", "", "a", true},
		{node, "watch", "", "pods", "", "", true},
		{node, "patch", "", "pods", "status", "", true},
		{node, "delete", "", "pods", "", "", true},
		{node, "watch", "", "secrets", "", "", true},
		{node, "watch", "networking.k8s.io", "networkpolicies", "", "", true},
		{node, "list", "", "namespaces", "", "", true},
		{node, "create", "", "serviceaccounts", "token", "", true},
		{node, "create", "authorization.k8s.io", "subjectaccessreviews", "", "", true},
		{node, "watch", "certificates.k8s.io", "clustertrustbundles", "", "", true},
		{node, "create", "certificates.k8s.io", "podcertificaterequests", "", "", true},
		{node, "get", "resource.k8s.io", "resourceclaims", "", "", true},
		{node, "deletecollection", "resource.k8s.io", "resourceslices", "", "", true},

		{node, "update", "", "nodes", "", "a", true},
		{node, "patch", "storage.k8s.io", "csinodes", "", "a", true},
		{node, "get", "", "nodes", "", "b", true},

		{node, "update", "", "nodes", "", "b", false},
		{node, "patch", "", "nodes", "status", "b", false},
		{node, "update", "coordination.k8s.io", "leases", "", "b", false},
		{node, "delete", "coordination.k8s.io", "leases", "", "kube-controller-manager", false},
		{node, "delete", "storage.k8s.io", "csinodes", "", "b", false},
		{nameless, "patch", "", "nodes", "status", "", false},
		{nameless, "patch", "", "nodes", "status", "system:nodes-of-old", false},

		{node, "delete", "", "nodes", "", "", false},
		{node, "update", "", "pods", "", "", false},
		{node, "create", "", "pods", "exec", "", false},
		{node, "create", "", "pods", "binding", "", false},
		{node, "create", "", "secrets", "", "", false},
		{node, "delete", "", "configmaps", "", "", false},
		{node, "update", "networking.k8s.io", "networkpolicies", "", "", false},
		{node, "create", "", "namespaces", "", "", false},
		{node, "get", "", "nodes", "proxy", "", false},
		{node, "create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", false},
		{node, "update", "certificates.k8s.io", "certificatesigningrequests", "approval", "", false},
		{node, "create", "certificates.k8s.io", "clustertrustbundles", "", "", false},
		{node, "update", "certificates.k8s.io", "podcertificaterequests", "status", "", false},
		{node, "list", "resource.k8s.io", "resourceclaims", "", "", false},
		{node, "update", "resource.k8s.io", "resourceclaims", "status", "", false},
		{node, "delete", "certificates.k8s.io", "podcertificaterequests", "", "", false},

		{server, "create", "", "nodes", "proxy", "", true},
		{server, "get", "", "nodes", "stats", "", true},
		{server, "get", "", "pods", "", "", false},
		{server, "update", "", "nodes", "", "", false},
	} {
		decision, _, err := grants.Authorize(t.Context(), authorizer.AttributesRecord{
			User: tc.who, Verb: tc.verb, APIGroup: tc.group, Resource: tc.resource, Subresource: tc.subresource, Name: tc.name, ResourceRequest: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if allowed := decision == authorizer.DecisionAllow; allowed != tc.allowed {
			t.Errorf("%s: %s %s %s/%s %s: allowed %v", tc.who.Name, tc.verb, tc.group, tc.resource, tc.subresource, tc.name, allowed)
		}
	}
}
