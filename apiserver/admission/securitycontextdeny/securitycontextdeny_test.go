package securitycontextdeny

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestPodsDoNotChooseTheirUser(t *testing.T) {
	pod := func(c corev1.PodSecurityContext) *corev1.Pod {
		return admissiontest.Pod(func(p *corev1.Pod) { p.Spec.SecurityContext = &c })
	}
	container := func(c corev1.SecurityContext) *corev1.Pod {
		return admissiontest.Pod(func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &c })
	}
	for _, test := range []struct {
		rule string
		pod  *corev1.Pod
		err  string
	}{
		{"a pod without a security context is admitted", admissiontest.Pod(), ""},
		{"a pod may refuse root", pod(corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}), ""},
		{"a pod does not choose supplemental groups", pod(corev1.PodSecurityContext{SupplementalGroups: []int64{1}}), "pod.Spec.SecurityContext.SupplementalGroups is forbidden"},
		{"a pod does not choose SELinux options", pod(corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{}}), "pod.Spec.SecurityContext.SELinuxOptions is forbidden"},
		{"a pod does not choose its user", pod(corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1))}), "pod.Spec.SecurityContext.RunAsUser is forbidden"},
		{"a pod does not choose the group of its volumes", pod(corev1.PodSecurityContext{FSGroup: ptr.To(int64(1))}), "pod.Spec.SecurityContext.FSGroup is forbidden"},
		{"a container may be privileged", container(corev1.SecurityContext{Privileged: ptr.To(true)}), ""},
		{"a container does not choose SELinux options", container(corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{}}), "SecurityContext.SELinuxOptions is forbidden"},
		{"a container does not choose its user", container(corev1.SecurityContext{RunAsUser: ptr.To(int64(1))}), "SecurityContext.RunAsUser is forbidden"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := admissiontest.Server{}.Start(t, Register).Send(t, admissiontest.Request{Object: test.pod})
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != `pods "pod" is forbidden: `+test.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
