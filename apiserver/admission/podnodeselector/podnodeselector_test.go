package podnodeselector

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNamespacesSelectTheNodesOfTheirPods(t *testing.T) {
	const (
		config    = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: \"pool=any\", ns: \"pool=any,disk=ssd\"}\n"
		conflict  = `pods "pod" is forbidden: pod node label selector conflicts with its namespace node label selector`
		whitelist = `pods "pod" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	)
	for _, test := range []struct {
		rule       string
		annotation string
		config     string
		given      labels.Set
		want, err  string
	}{
		{rule: "without annotation and configuration", given: labels.Set{"a": "b"}, want: "a=b"},
		{rule: "the annotation adds", annotation: "env=test", given: labels.Set{"a": "b"}, want: "a=b,env=test"},
		{rule: "an equal label", annotation: "env=test", given: labels.Set{"env": "test"}, want: "env=test"},
		{rule: "another value", annotation: "env=test", given: labels.Set{"env": "live"}, err: conflict},
		{rule: "the default of the cluster", config: config, want: "pool=any"},
		{rule: "the annotation replaces the default", annotation: "disk=ssd", config: config, want: "disk=ssd"},
		{rule: "a label in the whitelist", config: config, given: labels.Set{"disk": "ssd"}, want: "disk=ssd,pool=any"},
		{rule: "a label that is not in the whitelist", config: config, given: labels.Set{"a": "b"}, err: whitelist},
		{rule: "an annotation that is not a selector", annotation: "a b", err: "Internal error occurred: annotation scheduler.alpha.kubernetes.io/node-selector of namespace ns: invalid selector: [a b]"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := admissiontest.Server{Objects: []runtime.Object{admissiontest.Namespace("ns", func(ns *corev1.Namespace) {
				if test.annotation != "" {
					ns.Annotations = map[string]string{annotation: test.annotation}
				}
			})}}
			if test.config != "" {
				s.Config = strings.NewReader(test.config)
			}
			pod := admissiontest.Pod(func(p *corev1.Pod) { p.Spec.NodeSelector = test.given })
			err := s.Start(t, Register).Send(t, admissiontest.Request{Object: pod})
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Fatalf("got %v, want %s", err, test.err)
			}
			if got := labels.Set(pod.Spec.NodeSelector).String(); err == nil && got != test.want {
				t.Errorf("selector %s, want %s", got, test.want)
			}
		})
	}
}

func TestAnInvalidConfigurationIsNamed(t *testing.T) {
	for _, config := range []string{"podNodeSelectorPluginConfig: {ns: a b}", "unknown: 1", "["} {
		if _, err := (admissiontest.Server{Config: strings.NewReader(config)}).TryStart(t, Register); err == nil || !strings.Contains(err.Error(), "configuration of PodNodeSelector") {
			t.Errorf("%s: %v", config, err)
		}
	}
}
