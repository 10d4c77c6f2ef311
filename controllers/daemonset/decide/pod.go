package decide

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/pods"
)

const (
	// HashLabel is the label of pods and revisions that has the hash of the revision.
	HashLabel = appsv1.DefaultDaemonSetUniqueLabelKey
	// generationLabel is the label of pods that counts the versions of the template.
	generationLabel = "pod-template-generation"
)

// added are the taints that every daemon pod tolerates: those of nodes in trouble, which
// it may have to mend.
var added = [...]corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// NewPod returns the pod of a daemon set, which is of this kind, without its node.
func NewPod(ds *appsv1.DaemonSet, kind schema.GroupVersionKind, hash string) *corev1.Pod {
	pod := pods.FromTemplate(ds, kind, &ds.Spec.Template)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if generation := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels[generationLabel] = generation
	}
	if hash != "" {
		pod.Labels[HashLabel] = hash
	}
	for _, toleration := range added {
		tolerate(&pod.Spec, toleration)
	}
	if pod.Spec.HostNetwork {
		tolerate(&pod.Spec, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return pod
}

// tolerate adds a toleration. One with the same key and effect that tolerates less, for
// example for a limited time, is replaced.
func tolerate(spec *corev1.PodSpec, t corev1.Toleration) {
	for i := range spec.Tolerations {
		old := &spec.Tolerations[i]
		if old.Key == t.Key && old.Effect == t.Effect && old.Operator == t.Operator && old.Value == t.Value {
			old.TolerationSeconds = nil
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, t)
}

// onNode returns a copy of the pod that only the named node can run. The scheduler binds
// it, when the node has room for it.
func onNode(pod *corev1.Pod, name string) *corev1.Pod {
	pod = pod.DeepCopy()
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node matches the required affinity of the template, which this replaces.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}}},
	}
	return pod
}

// NodeOf returns the node that runs a daemon pod, or for which it was created; an empty
// string if it has none.
func NodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// sortByAge sorts pods that have a node before those that have none, and then the oldest
// first.
func sortByAge(all []*corev1.Pod) {
	slices.SortFunc(all, func(a, b *corev1.Pod) int {
		if (a.Spec.NodeName == "") != (b.Spec.NodeName == "") {
			if a.Spec.NodeName != "" {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}
