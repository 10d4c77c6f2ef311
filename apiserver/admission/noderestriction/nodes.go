package noderestriction

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// nodeCreation returns an error unless the node may create its Node so.
func nodeCreation(node string, made *corev1.Node) error {
	if made.Name != node {
		return notItself(node, made)
	}
	if len(made.OwnerReferences) > 0 {
		return fmt.Errorf("node %q is not allowed to set ownerReferences", node)
	}
	if len(podCIDRs(made)) > 0 {
		return fmt.Errorf("node %q is not allowed to set podCIDRs", node)
	}
	if forbidden := forbiddenLabels(made.Labels, nil); len(forbidden) > 0 {
		return fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(forbidden, ", "))
	}
	return nil
}

// nodeChange returns an error unless the node may change its Node so. A node that
// changed its taints or the labels of administrators could draw pods to itself that are
// not meant for it; one that set an owner could have the garbage collector delete its Node,
// and register again without them (CVE-2025-5187); one that chose its address ranges could have
// all other nodes route any network to it.
func nodeChange(node string, a admission.Attributes, old *corev1.Node) error {
	if old.Name != node {
		return notItself(node, old)
	}
	changed, updated := a.GetObject().(*corev1.Node)
	if !updated {
		return nil
	}
	if !equality.Semantic.DeepEqual(changed.Spec.Taints, old.Spec.Taints) {
		return fmt.Errorf("node %q is not allowed to modify taints", node)
	}
	if !equality.Semantic.DeepEqual(changed.OwnerReferences, old.OwnerReferences) {
		return fmt.Errorf("node %q is not allowed to modify ownerReferences", node)
	}
	if !slices.Equal(podCIDRs(changed), podCIDRs(old)) {
		return fmt.Errorf("node %q is not allowed to modify podCIDRs", node)
	}
	if forbidden := forbiddenLabels(changed.Labels, old.Labels); len(forbidden) > 0 {
		return errors.New("is not allowed to modify labels: " + strings.Join(forbidden, ", "))
	}
	return nil
}

// podCIDRs returns the address ranges of a node's pods, in both fields.
func podCIDRs(n *corev1.Node) []string {
	if n.Spec.PodCIDR == "" {
		return n.Spec.PodCIDRs
	}
	return append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...)
}

func notItself(node string, other *corev1.Node) error {
	return fmt.Errorf("node %q is not allowed to modify node %q", node, other.Name)
}

// forbiddenLabels returns the labels that differ and that a node must not set, change or
// remove: those of node-restriction.kubernetes.io, and those of Kubernetes that agents do
// not set.
func forbiddenLabels(labels, old map[string]string) []string {
	var forbidden []string
	for _, keys := range []map[string]string{labels, old} {
		for key := range keys {
			value, set := labels[key]
			before, was := old[key]
			if (value != before || set != was) && !mayLabel(key) && !slices.Contains(forbidden, key) {
				forbidden = append(forbidden, key)
			}
		}
	}
	slices.Sort(forbidden)
	return forbidden
}

// mayLabel reports whether nodes may set a label.
func mayLabel(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if within(corev1.LabelNamespaceNodeRestriction) {
		return false
	}
	return !within("kubernetes.io") && !within("k8s.io") || kubeletapis.IsKubeletLabel(key)
}
