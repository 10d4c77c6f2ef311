package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestSelectorsWarnOfDeprecatedNodeLabels(t *testing.T) {
	const os, arch = "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
	const useOS, useArch = `deprecated since v1.14; use "kubernetes.io/os" instead`, `deprecated since v1.14; use "kubernetes.io/arch" instead`
	path := field.NewPath("at")
	for _, test := range []struct {
		name string
		got  []string
		want []string
	}{
		{"the stable label", WarnNodeLabel("kubernetes.io/os", path), nil},
		{"a label", WarnNodeLabel(os, path), []string{"at: " + os + " is " + useOS}},
		{"the keys of a map, in order", WarnNodeLabels(map[string]string{os: "linux", arch: "arm", "a": "b"}, path),
			[]string{"at[" + arch + "]: " + useArch, "at[" + os + "]: " + useOS}},
		{"no selector of labels", WarnLabelSelector(nil, path), nil},
		{"a selector of labels", WarnLabelSelector(&metav1.LabelSelector{
			MatchLabels: map[string]string{arch: "arm"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: os}},
		}, path), []string{"at.matchExpressions[0].key: " + os + " is " + useOS, "at.matchLabels[" + arch + "]: " + useArch}},
		{"no selector of nodes", WarnNodeSelector(nil, path), nil},
		{"a selector of nodes", WarnNodeSelector(&corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, {MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a"}, {Key: os}}}},
		}, path), []string{"at.nodeSelectorTerms[1].matchExpressions[1].key: " + os + " is " + useOS}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: warnings are %q, want %q", test.name, test.got, test.want)
		}
	}
}
