package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var deprecatedNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// WarnNodeLabel returns a warning if key, at path, is a deprecated label of nodes.
func WarnNodeLabel(key string, path *field.Path) []string {
	if msg := deprecatedNodeLabels[key]; msg != "" {
		return []string{warning(path, "%s is %s", key, msg)}
	}
	return nil
}

// WarnNodeLabels returns a warning for each deprecated label of nodes that is a key
// of the map at path.
func WarnNodeLabels(selector map[string]string, path *field.Path) []string {
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if msg := deprecatedNodeLabels[key]; msg != "" {
			warnings = append(warnings, warning(path.Key(key), "%s", msg))
		}
	}
	return warnings
}

// WarnNodeSelectorTerm returns a warning for each deprecated label of nodes in the
// term at path.
func WarnNodeSelectorTerm(t *corev1.NodeSelectorTerm, path *field.Path) []string {
	var warnings []string
	for i, e := range t.MatchExpressions {
		warnings = append(warnings, WarnNodeLabel(e.Key, path.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return warnings
}

// WarnLabelSelector returns a warning for each deprecated label of nodes in the
// selector of nodes at path.
func WarnLabelSelector(s *metav1.LabelSelector, path *field.Path) []string {
	if s == nil {
		return nil
	}
	var warnings []string
	for i, e := range s.MatchExpressions {
		warnings = append(warnings, WarnNodeLabel(e.Key, path.Child("matchExpressions").Index(i).Child("key"))...)
	}
	return append(warnings, WarnNodeLabels(s.MatchLabels, path.Child("matchLabels"))...)
}

// WarnNodeSelector returns a warning for each deprecated label of nodes in the
// node selector at path.
func WarnNodeSelector(s *corev1.NodeSelector, path *field.Path) []string {
	if s == nil {
		return nil
	}
	var warnings []string
	for i := range s.NodeSelectorTerms {
		warnings = append(warnings, WarnNodeSelectorTerm(&s.NodeSelectorTerms[i], path.Child("nodeSelectorTerms").Index(i))...)
	}
	return warnings
}

func warnDeprecatedNodeLabels(spec *corev1.PodSpec, _ map[string]string, path *field.Path) []string {
	path = path.Child("spec")
	warnings := WarnNodeLabels(spec.NodeSelector, path.Child("nodeSelector"))
	if a := NodeAffinity(spec); a != nil {
		path := path.Child("affinity", "nodeAffinity")
		warnings = append(warnings, WarnNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution, path.Child("requiredDuringSchedulingIgnoredDuringExecution"))...)
		for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			warnings = append(warnings, WarnNodeSelectorTerm(&a.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference,
				path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))...)
		}
	}
	for i, c := range spec.TopologySpreadConstraints {
		warnings = append(warnings, WarnNodeLabel(c.TopologyKey, path.Child("topologySpreadConstraints").Index(i).Child("topologyKey"))...)
	}
	return warnings
}
