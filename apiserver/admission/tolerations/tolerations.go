// Package tolerations merges and compares the tolerations of pods, for the admission
// plugins that add or restrict them.
package tolerations

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Merge returns the tolerations of both lists without those that another one
// covers. Of equal ones, the first stays.
func Merge(first, second []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(first, second)
	var merged []corev1.Toleration
	for i, t := range all {
		covered := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return covers(other, t) }) ||
			slices.ContainsFunc(all[i+1:], func(later corev1.Toleration) bool {
				return !apiequality.Semantic.DeepEqual(later, t) && covers(later, t)
			})
		if !covered {
			merged = append(merged, t)
		}
	}
	return merged
}

// Allowed reports whether each of the tolerations is covered by one of a whitelist.
// An empty whitelist allows everything.
func Allowed(given, whitelist []corev1.Toleration) bool {
	return len(whitelist) == 0 || !slices.ContainsFunc(given, func(t corev1.Toleration) bool {
		return !slices.ContainsFunc(whitelist, func(w corev1.Toleration) bool { return covers(w, t) })
	})
}

// covers reports whether wide tolerates every taint that narrow does, as long.
func covers(wide, narrow corev1.Toleration) bool {
	if apiequality.Semantic.DeepEqual(wide, narrow) {
		return true
	}
	exists := wide.Operator == corev1.TolerationOpExists
	anyKey, anyEffect := wide.Key == "" && exists, wide.Effect == ""
	if wide.Key != narrow.Key && !anyKey || wide.Effect != narrow.Effect && !anyEffect {
		return false
	}
	if wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(narrow.TolerationSeconds == nil || *narrow.TolerationSeconds > *wide.TolerationSeconds) {
		return false
	}
	return exists || equals(wide.Operator) && equals(narrow.Operator) && wide.Value == narrow.Value
}

// equals reports whether an operator is Equal, which is the default.
func equals(o corev1.TolerationOperator) bool { return o == corev1.TolerationOpEqual || o == "" }
