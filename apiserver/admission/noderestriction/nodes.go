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

// nodeChange returns an error unless the node may change its Node so. A node that
// changed its taints or the labels of administrators could draw pods to itself that are
// not meant for it.
func nodeChange(node string, a admission.Attributes, old *corev1.Node) error {
	err := ofName(node, old)
	changed, updated := a.GetObject().(*corev1.Node)
	if err != nil || !updated {
		return err
	}
	if !equality.Semantic.DeepEqual(changed.Spec.Taints, old.Spec.Taints) {
		return fmt.Errorf("node %q is not allowed to modify taints", node)
	}
	return labelsOf(node, changed.Labels, old.Labels)
}

// labelsOf returns an error if a label differs that a node must not set, change or
// remove: those of node-restriction.kubernetes.io, and those of Kubernetes that agents do
// not set.
func labelsOf(node string, labels, old map[string]string) error {
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
	if len(forbidden) == 0 {
		return nil
	}
	slices.Sort(forbidden)
	if old == nil {
		return fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(forbidden, ", "))
	}
	return errors.New("is not allowed to modify labels: " + strings.Join(forbidden, ", "))
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
