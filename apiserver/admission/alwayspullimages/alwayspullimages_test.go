package alwayspullimages

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNewImagesAreAlwaysPulled(t *testing.T) {
	image := func(name string, policy corev1.PullPolicy) *corev1.Pod {
		return admissiontest.Pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = name, policy
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "same", ImagePullPolicy: policy}}
			p.Spec.Volumes = []corev1.Volume{imageVolume(policy), {Name: "dir"}}
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
			spec := test.new.Spec
			got := []corev1.PullPolicy{spec.Containers[0].ImagePullPolicy, spec.InitContainers[0].ImagePullPolicy, spec.Volumes[0].Image.PullPolicy}
			if want := []corev1.PullPolicy{test.want, test.want, test.want}; !slices.Equal(got, want) {
				t.Errorf("policies %s, want %s", got, want)
			}
		})
	}
}

// TestAPolicyThatAWebhookSetsIsRefused validates without the plugin's own change.
func TestAPolicyThatAWebhookSetsIsRefused(t *testing.T) {
	p := &plugin{}
	for path, change := range map[string]func(*corev1.Pod){
		"containers[0].imagePullPolicy": func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullNever },
		"volumes[0].image.pullPolicy": func(p *corev1.Pod) {
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
			p.Spec.Volumes = []corev1.Volume{imageVolume(corev1.PullNever)}
		},
	} {
		err := p.Validate(t.Context(), (admissiontest.Request{Object: admissiontest.Pod(change)}).Attributes(t), nil)
		if err == nil || err.Error() != `pods "pod" is forbidden: spec.`+path+`: Unsupported value: "Never": supported values: "Always"` {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func imageVolume(policy corev1.PullPolicy) corev1.Volume {
	return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "private", PullPolicy: policy}}}
}
