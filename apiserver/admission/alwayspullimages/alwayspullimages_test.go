package alwayspullimages

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNewImagesAreAlwaysPulled(t *testing.T) {
	image := func(name string, policy corev1.PullPolicy) *corev1.Pod {
		return admissiontest.Pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = name, policy
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "same", ImagePullPolicy: policy}}
		})
	}
	for _, test := range []struct {
		rule     string
		new, old *corev1.Pod
		status   bool
		want     corev1.PullPolicy
	}{
		{"a new pod", image("a", corev1.PullIfNotPresent), nil, false, corev1.PullAlways},
		{"a new image", image("b", corev1.PullNever), image("a", corev1.PullNever), false, corev1.PullAlways},
		{"an update without a new image", image("a", corev1.PullNever), image("a", corev1.PullNever), false, corev1.PullNever},
		{"the status", image("b", corev1.PullNever), image("a", corev1.PullNever), true, corev1.PullNever},
	} {
		t.Run(test.rule, func(t *testing.T) {
			r := admissiontest.Request{Object: test.new}
			if test.old != nil {
				r.Old = test.old
			}
			if test.status {
				r.Subresource = "status"
			}
			if err := (admissiontest.Server{}).Start(t, Register).Send(t, r); err != nil {
				t.Fatal(err)
			}
			if got := test.new.Spec; got.Containers[0].ImagePullPolicy != test.want || got.InitContainers[0].ImagePullPolicy != test.want {
				t.Errorf("policies %s and %s", got.Containers[0].ImagePullPolicy, got.InitContainers[0].ImagePullPolicy)
			}
		})
	}
}

// TestAPolicyThatAWebhookSetsIsRefused validates without the plugin's own change.
func TestAPolicyThatAWebhookSetsIsRefused(t *testing.T) {
	p := &plugin{}
	pod := admissiontest.Pod(func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever })
	err := p.Validate(t.Context(), (admissiontest.Request{Object: pod}).Attributes(t), nil)
	if err == nil || err.Error() != `pods "pod" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: "Never": supported values: "Always"` {
		t.Errorf("got %v", err)
	}
}
