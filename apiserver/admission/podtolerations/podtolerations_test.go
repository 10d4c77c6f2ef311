package podtolerations

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNamespacesSetAndRestrictTolerations(t *testing.T) {
	const (
		config = `
apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
kind: Configuration
default: [{key: a, operator: Exists}]
whitelist: [{key: a, operator: Exists}, {key: b, operator: Exists}]
`
		inCluster   = `pods "pod" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist`
		inNamespace = `pods "pod" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist`
	)
	c := []corev1.Toleration{{Key: "c", Operator: corev1.TolerationOpExists}}
	for _, test := range []struct {
		rule        string
		annotations map[string]string
		config      string
		given       []corev1.Toleration
		requests    bool
		update      bool
		want, err   string
	}{
		{rule: "without annotations and configuration", given: c, want: "c"},
		{rule: "the namespace's default is added", annotations: map[string]string{defaultAnnotation: `[{"key":"d","operator":"Exists"}]`}, given: c, want: "c d"},
		{rule: "not in an update", annotations: map[string]string{defaultAnnotation: `[{"key":"d","operator":"Exists"}]`}, given: c, update: true, want: "c"},
		{rule: "the cluster's default", config: config, want: "a"},
		{rule: "an empty default of the namespace replaces it", annotations: map[string]string{defaultAnnotation: ""}, config: config},
		{rule: "the cluster's whitelist", config: config, given: c, err: inCluster},
		{rule: "the namespace's whitelist", annotations: map[string]string{whitelistAnnotation: `[{"key":"d"}]`}, given: c, err: inNamespace},
		{rule: "an empty whitelist of the namespace allows everything", annotations: map[string]string{whitelistAnnotation: ""}, config: config, given: c, want: "c a"},
		{rule: "pods that request resources tolerate memory pressure", requests: true, want: "node.kubernetes.io/memory-pressure"},
		{rule: "an annotation that is not JSON", annotations: map[string]string{whitelistAnnotation: "x"}, given: c,
			err: "Internal error occurred: annotation scheduler.alpha.kubernetes.io/tolerationsWhitelist of namespace ns: invalid character 'x' looking for beginning of value"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := admissiontest.Server{Objects: []runtime.Object{admissiontest.Namespace("ns", func(ns *corev1.Namespace) { ns.Annotations = test.annotations })}}
			if test.config != "" {
				s.Config = strings.NewReader(test.config)
			}
			pod := admissiontest.Pod(func(p *corev1.Pod) {
				p.Spec.Tolerations = test.given
				if test.requests {
					p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
				}
			})
			r := admissiontest.Request{Object: pod}
			if test.update {
				r.Old = pod.DeepCopy()
			}
			err := s.Start(t, Register).Send(t, r)
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Fatalf("got %v, want %s", err, test.err)
			}
			var keys []string
			for _, toleration := range pod.Spec.Tolerations {
				keys = append(keys, toleration.Key)
			}
			if got := strings.Join(keys, " "); err == nil && got != test.want {
				t.Errorf("tolerations %s, want %s", got, test.want)
			}
		})
	}
}

func TestAnInvalidConfigurationIsNamed(t *testing.T) {
	for _, config := range []string{"apiVersion: v1\nkind: Other\n", "default: x", "["} {
		if _, err := (admissiontest.Server{Config: strings.NewReader(config)}).TryStart(t, Register); err == nil || !strings.Contains(err.Error(), "configuration of PodTolerationRestriction") {
			t.Errorf("%s: %v", config, err)
		}
	}
}
