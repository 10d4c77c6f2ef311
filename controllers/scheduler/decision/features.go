package decision

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"svc.dev/svc/internal/releases"
)

// DeclaredFeatures is the filter of the features that nodes declare, and its feature gate
// (KEP-5328).
const DeclaredFeatures = "NodeDeclaredFeatures"

// release is the newest one that is known: no feature is so old that nodes need not declare
// it any more.
var release = version.MustParse(releases.Newest.String())

// featuresOf returns the features that a pod needs of its node.
func featuresOf(pod *corev1.Pod) (nodedeclaredfeatures.FeatureSet, error) {
	return nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec}, release)
}

// declaresFeatures rejects nodes that do not declare the features that the pod needs, such as
// a restart rule that restarts all containers.
func declaresFeatures(_ *Snapshot, r *request) rule {
	needed, err := featuresOf(r.pod)
	if err != nil {
		return rule{podReason: err.Error()}
	}
	if needed.IsEmpty() {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		if declares, err := needed.IsSubset(n.features); err != nil || !declares {
			why = append(why, "node(s) didn't match Pod's required features")
		}
		return why
	}}
}
