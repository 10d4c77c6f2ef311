package runtimeclass

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func cpu(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func TestPodsGetWhatTheirClassAdds(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	tolerated := corev1.Toleration{Key: "virtual", Operator: corev1.TolerationOpExists}
	classes := []runtime.Object{
		&nodev1.RuntimeClass{ObjectMeta: named("plain"), Handler: "runc"},
		&nodev1.RuntimeClass{ObjectMeta: named("virtual"), Handler: "kata",
			Overhead:   &nodev1.Overhead{PodFixed: cpu("250m")},
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"virtual": "yes"}, Tolerations: []corev1.Toleration{tolerated}}},
	}
	const forbidden = `pods "pod" is forbidden: `
	for _, test := range []struct {
		rule   string
		class  *string
		change func(*corev1.PodSpec)
		want   func(*corev1.PodSpec)
		err    string
	}{
		{rule: "without a class a pod stays as it is"},
		{rule: "a class without overhead adds nothing", class: ptr.To("plain")},
		{rule: "overhead, node selector and tolerations", class: ptr.To("virtual"), want: func(s *corev1.PodSpec) {
			s.Overhead, s.NodeSelector, s.Tolerations = cpu("250m"), map[string]string{"virtual": "yes"}, []corev1.Toleration{tolerated}
		}},
		{rule: "they are added to the pod's own", class: ptr.To("virtual"), change: func(s *corev1.PodSpec) {
			s.Overhead, s.NodeSelector, s.Tolerations = cpu("0.25"), map[string]string{"disk": "ssd"}, []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
		}, want: func(s *corev1.PodSpec) {
			s.Overhead, s.NodeSelector = cpu("250m"), map[string]string{"disk": "ssd", "virtual": "yes"}
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}, tolerated}
		}},
		{rule: "another overhead", class: ptr.To("virtual"), change: func(s *corev1.PodSpec) { s.Overhead = cpu("1") },
			err: "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		{rule: "an overhead without a class", change: func(s *corev1.PodSpec) { s.Overhead = cpu("1") },
			err: "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{rule: "an overhead that the class does not have", class: ptr.To("plain"), change: func(s *corev1.PodSpec) { s.Overhead = cpu("1") },
			err: "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{rule: "another node selector", class: ptr.To("virtual"), change: func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"virtual": "no"} },
			err: "conflict: runtimeClass.scheduling.nodeSelector[virtual] = yes; pod.spec.nodeSelector[virtual] = no"},
		{rule: "an unknown class", class: ptr.To("gone"), err: `pod rejected: RuntimeClass "gone" not found`},
		{rule: "a name that no class can have", class: ptr.To("a/b"), err: `pod rejected: RuntimeClass "a/b" not found`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			pod := admissiontest.Pod()
			pod.Spec.RuntimeClassName = test.class
			want := pod.Spec.DeepCopy()
			if test.change != nil {
				test.change(&pod.Spec)
			}
			if test.want != nil {
				test.want(want)
			}
			err := admissiontest.Server{Objects: classes}.Start(t, Register).Send(t, admissiontest.Request{Object: pod})
			if test.err != "" {
				if !apierrors.IsForbidden(err) || err.Error() != forbidden+test.err {
					t.Errorf("got %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*want, pod.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}
