package antiaffinity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestPodsAreKeptApartOnlyByNode(t *testing.T) {
	apart := func(key string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}}}}
		}
	}
	for _, test := range []struct {
		rule string
		pod  *corev1.Pod
		err  string
	}{
		{"no affinity", admissiontest.Pod(), ""},
		{"by node", admissiontest.Pod(apart("kubernetes.io/hostname")), ""},
		{"by zone", admissiontest.Pod(apart("zone")),
			`pods "pod" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := admissiontest.Server{}.Start(t, Register).Send(t, admissiontest.Request{Object: test.pod})
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
		})
	}
}
