package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
)

// TestANodeReadsItsOwnNodeAndPods has the rules of the feature gate AuthorizeNodeWithSelectors.
func TestANodeReadsItsOwnNodeAndPods(t *testing.T) {
	graph := []any{decode[corev1.Pod](t, ownPod), decode[corev1.Pod](t, otherPod), decode[corev1.Pod](t, mirrorPod)}
	a := newAuthorizer(t, graph, decode[corev1.Pod](t, latePod), decode[corev1.Pod](t, otherPod), decode[corev1.Pod](t, mirrorPod))
	const unrelated = "no relationship found between node 'n1' and this object"
	const unselected = "can only list/watch pods with spec.nodeName field selector"
	for _, test := range []struct{ rule, verb, group, resource, namespace, name, refusal string }{
		{"its Node, which may not exist", "get", "", "nodes", "", "n1", ""},
		{"a watch of its Node by name", "watch", "", "nodes", "", "n1", ""},
		{"another Node", "get", "", "nodes", "", "n2", "node 'n1' cannot read 'n2', only its own Node object"},
		{"all Nodes", "list", "", "nodes", "", "", "node 'n1' cannot read all nodes, only its own Node object"},
		{"a new Node, which NodeRestriction checks", "create", "", "nodes", "", "", ""},
		{"the status of a Node, which the rules check", "patch", "", "nodes/status", "", "n1", ""},
		{"its pod", "get", "", "pods", "shop", "mine", ""},
		{"its static pod", "get", "", "pods", "shop", "static", ""},
		{"a watch of its pod by name", "watch", "", "pods", "shop", "mine", ""},
		{"another node's pod", "get", "", "pods", "shop", "theirs", unrelated},
		{"a list of another node's pod by name", "list", "", "pods", "shop", "theirs", unrelated},
		{"a pod of the name in another namespace", "get", "", "pods", "bank", "mine", unrelated},
		{"a pod that the graph does not have yet", "get", "", "pods", "shop", "late", ""},
		{"a pod that does not exist", "get", "", "pods", "shop", "none", unrelated},
		{"a pod without a name", "get", "", "pods", "shop", "", "No Object name found"},
		{"all pods", "list", "", "pods", "", "", unselected},
		{"all pods of a namespace", "watch", "", "pods", "shop", "", unselected},
		{"the deletion of a pod, which NodeRestriction checks", "delete", "", "pods", "shop", "theirs", ""},
		{"the status of a pod, which NodeRestriction checks", "patch", "", "pods/status", "shop", "theirs", ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			decision, reason, err := a.Authorize(t.Context(), request("n1", test.verb, test.group, test.resource, test.namespace, test.name))
			if err != nil || reason != test.refusal || (decision == authorizer.DecisionAllow) != (test.refusal == "") {
				t.Errorf("got %v %q %v, want %q", decision, reason, err, test.refusal)
			}
		})
	}
}

func TestASelectorDoesNotLetANodeReadAPodOfAnother(t *testing.T) {
	a := newAuthorizer(t, []any{decode[corev1.Pod](t, otherPod)}, decode[corev1.Pod](t, otherPod))
	attrs := request("n1", "get", "", "pods", "shop", "theirs")
	attrs.FieldSelectorRequirements = fields.ParseSelectorOrDie("spec.nodeName=n1").Requirements()
	if decision, _, err := a.Authorize(t.Context(), attrs); err != nil || decision == authorizer.DecisionAllow {
		t.Errorf("%v, %v", decision, err)
	}
}

// TestWithoutSelectorsANodeReadsAllNodesPodsAndSlices is Kubernetes before 1.32.
func TestWithoutSelectorsANodeReadsAllNodesPodsAndSlices(t *testing.T) {
	a := New(authorizerfactory.NewAlwaysAllowAuthorizer(), Features{})
	for resource, group := range map[string]string{"nodes": "", "pods": "", "resourceslices": "resource.k8s.io"} {
		if decision, reason, err := a.Authorize(t.Context(), request("n1", "list", group, resource, "", "")); err != nil || decision != authorizer.DecisionAllow {
			t.Errorf("%s: %v %q %v", resource, decision, reason, err)
		}
	}
}

func TestANodeReportsTheHealthOfItsOwnStorage(t *testing.T) {
	off, on := Features{}, Features{StorageHealth: true}
	for _, test := range []struct {
		features                   Features
		verb, resource, name, want string
	}{
		{on, "get", "csinodes/status", "n1", ""},
		{on, "update", "csinodes/status", "n1", ""},
		{on, "patch", "csinodes/status", "n1", ""},
		{on, "delete", "csinodes/status", "n1", "can only get, update, or patch CSINode status"},
		{on, "patch", "csinodes/status", "n2", "can only access CSINode with the same name as the requesting node"},
		{on, "get", "csinodes/scale", "n1", "cannot authorize subresources of a CSINode"},
		{off, "patch", "csinodes/status", "n1", "CSINode status access requires CSIVolumeHealth feature"},
	} {
		a := New(authorizerfactory.NewAlwaysAllowAuthorizer(), test.features)
		decision, reason, err := a.Authorize(t.Context(), request("n1", test.verb, "storage.k8s.io", test.resource, "", test.name))
		if err != nil || (decision == authorizer.DecisionAllow) != (test.want == "") || reason != test.want {
			t.Errorf("%s %s %s: %v %q %v", test.verb, test.resource, test.name, decision, reason, err)
		}
	}
}
