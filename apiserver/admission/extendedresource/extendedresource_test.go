package extendedresource

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestPodsTolerateTheTaintsOfTheirExtendedResources(t *testing.T) {
	gpu := corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	fpga := corev1.Toleration{Key: "example.com/fpga", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	for _, test := range []struct {
		rule        string
		resources   []corev1.ResourceName
		given, want []corev1.Toleration
	}{
		{"a native resource", []corev1.ResourceName{"cpu"}, nil, nil},
		{"an extended resource", []corev1.ResourceName{"cpu", "example.com/gpu"}, nil, []corev1.Toleration{gpu}},
		{"several, by name", []corev1.ResourceName{"example.com/gpu", "example.com/fpga"}, nil, []corev1.Toleration{fpga, gpu}},
		{"one that is tolerated", []corev1.ResourceName{"example.com/gpu"}, []corev1.Toleration{gpu}, []corev1.Toleration{gpu}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := admissiontest.Pod()
			pod.Spec.Tolerations = test.given
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
			for _, name := range test.resources {
				pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
			}
			if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: pod}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(pod.Spec.Tolerations, test.want) {
				t.Errorf("tolerations %v", pod.Spec.Tolerations)
			}
		})
	}
}
