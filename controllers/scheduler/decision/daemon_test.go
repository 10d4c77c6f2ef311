package decision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestADaemonPodFitsByNameAffinityAndTaints(t *testing.T) {
	taint := func(effect corev1.TaintEffect) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "own", Effect: effect}}}}
	}
	named := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}},
	}}}
	for _, tt := range []struct {
		rule      string
		spec      corev1.PodSpec
		node      *corev1.Node
		run, stay bool
	}{
		{"any node", corev1.PodSpec{}, &corev1.Node{}, true, true},
		{"another node's name", corev1.PodSpec{NodeName: "b"}, taint(""), false, false},
		{"another node's name in the affinity", corev1.PodSpec{Affinity: named}, taint(""), false, false},
		{"a label is missing", corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, taint(""), false, false},
		{"NoSchedule", corev1.PodSpec{}, taint(corev1.TaintEffectNoSchedule), false, true},
		{"NoExecute", corev1.PodSpec{}, taint(corev1.TaintEffectNoExecute), false, false},
		{"PreferNoSchedule", corev1.PodSpec{}, taint(corev1.TaintEffectPreferNoSchedule), true, true},
		{"tolerated", corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}, taint(corev1.TaintEffectNoExecute), true, true},
		{"no room", corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}}, &corev1.Node{}, true, true},
		{"cordoned without the taint", corev1.PodSpec{}, &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, true, true},
	} {
		if run, stay := NewDaemonPod(&corev1.Pod{Spec: tt.spec}).Fits(tt.node); run != tt.run || stay != tt.stay {
			t.Errorf("%s: run %v, stay %v", tt.rule, run, stay)
		}
	}
}
