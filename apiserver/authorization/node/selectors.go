package node

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// restrictNodes refuses to read Nodes other than the node's own. Reads of its own are allowed
// before it exists.
func restrictNodes(_ context.Context, _ *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch {
	case attrs.GetSubresource() != "" || !reads(attrs) || attrs.GetName() == node:
		return "", nil
	case attrs.GetName() == "":
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node), nil
	}
	return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, attrs.GetName()), nil
}

// restrictPods refuses to read pods that are not bound to the node.
func restrictPods(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch {
	case attrs.GetSubresource() != "" || !reads(attrs):
		return "", nil
	case attrs.GetVerb() != "get" && selectsNode(attrs, node):
		return "", nil
	case attrs.GetName() != "":
		return a.ownPod(ctx, node, types.NamespacedName{Namespace: attrs.GetNamespace(), Name: attrs.GetName()})
	case attrs.GetVerb() == "get":
		return "No Object name found", nil
	}
	return "can only list/watch pods with spec.nodeName field selector", nil
}

// ownPod returns a refusal unless the pod is bound to the node. The graph may not have it
// yet: before a refusal it is read from the API.
func (a *Authorizer) ownPod(ctx context.Context, node string, name types.NamespacedName) (string, error) {
	if a.graph.bound(node, name) {
		return "", nil
	}
	pod, err := a.client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node {
		return unrelated(node), nil
	}
	return "", err
}

// reads reports whether the verb of a request is one that reads objects.
func reads(attrs authorizer.Attributes) bool {
	return slices.Contains([]string{"get", "list", "watch"}, attrs.GetVerb())
}

// selectsNode reports whether a request selects only objects whose field spec.nodeName is
// the node.
func selectsNode(attrs authorizer.Attributes, node string) bool {
	requirements, err := attrs.GetFieldSelector()
	return err == nil && slices.ContainsFunc(requirements, func(r fields.Requirement) bool {
		return r.Field == "spec.nodeName" && r.Operator == selection.Equals && r.Value == node
	})
}
