package admit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestAdmissionUnderPressure(t *testing.T) {
	memory, disk := corev1.NodeMemoryPressure, corev1.NodeDiskPressure
	with := func(spec corev1.PodSpec) *corev1.Pod { return &corev1.Pod{Spec: spec} }
	bestEffort := with(corev1.PodSpec{Containers: []corev1.Container{{}}})
	burstable := with(corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}}}}})
	tolerant := with(corev1.PodSpec{Containers: []corev1.Container{{}}, Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists}}})
	critical := with(corev1.PodSpec{Containers: []corev1.Container{{}}, Priority: ptr.To[int32](2_000_000_000)})
	for _, test := range []struct {
		rule     string
		pod      *corev1.Pod
		pressure []corev1.NodeConditionType
		want     string
	}{
		{"without pressure all are admitted", bestEffort, nil, ""},
		{"memory pressure refuses those that request nothing", bestEffort, []corev1.NodeConditionType{memory}, "The node had condition: [MemoryPressure]. "},
		{"memory pressure admits those that request resources", burstable, []corev1.NodeConditionType{memory}, ""},
		{"memory pressure admits those that tolerate its taint", tolerant, []corev1.NodeConditionType{memory}, ""},
		{"disk pressure refuses all", burstable, []corev1.NodeConditionType{disk}, "The node had condition: [DiskPressure]. "},
		{"further pressure refuses all", tolerant, []corev1.NodeConditionType{disk, memory}, "The node had condition: [DiskPressure MemoryPressure]. "},
		{"critical pods are admitted", critical, []corev1.NodeConditionType{disk, memory}, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			refusal := noPressure(candidate{pod: test.pod, options: Options{Pressure: test.pressure}})
			if test.want == "" && refusal != nil || test.want != "" && (refusal == nil || refusal.Reason != "Evicted" || refusal.Message != test.want) {
				t.Errorf("got %v, want %q", refusal, test.want)
			}
		})
	}
}
