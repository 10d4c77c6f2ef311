package topologylabels

import (
	"errors"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

type labels = map[string]string

func start(t *testing.T, enabled bool) *admissiontest.Plugin {
	t.Helper()
	node := func(name string, l labels) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}
	}
	return admissiontest.Server{Objects: []runtime.Object{
		node("both", labels{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r", "disk": "ssd"}),
		node("zone", labels{corev1.LabelTopologyZone: "z"}),
		node("none", labels{"disk": "ssd"}),
	}}.Start(t, func(plugins *admission.Plugins) { Register(plugins, func() (bool, error) { return enabled, nil }) })
}

func TestPodsGetTheZoneAndRegionOfTheirNode(t *testing.T) {
	for _, test := range []struct {
		rule, node  string
		kind        string
		off         bool
		given, want labels
	}{
		{rule: "both labels, and no other", node: "both", want: labels{corev1.LabelTopologyZone: "z", corev1.LabelTopologyRegion: "r"}},
		{rule: "the labels that the node has", node: "zone", want: labels{corev1.LabelTopologyZone: "z"}},
		{rule: "they replace the pod's", node: "zone", given: labels{corev1.LabelTopologyZone: "y", "a": "b"}, want: labels{corev1.LabelTopologyZone: "z", "a": "b"}},
		{rule: "a node without topology", node: "none"},
		{rule: "a node that does not exist", node: "gone"},
		{rule: "no node"},
		{rule: "a target that is no node", node: "both", kind: "Pod"},
		{rule: "without the gate", node: "both", off: true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			plugin := start(t, !test.off)
			pod := admissiontest.Pod(func(p *corev1.Pod) { p.Labels, p.Spec.NodeName = maps.Clone(test.given), test.node })
			binding := &corev1.Binding{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Target: corev1.ObjectReference{Kind: "Node", Name: test.node}}
			if test.kind != "" {
				binding.Target.Kind, pod.Spec.NodeName = test.kind, ""
			}
			for _, r := range []admissiontest.Request{{Object: pod}, {Object: binding, Subresource: "binding"}} {
				if err := plugin.Send(t, r); err != nil {
					t.Fatal(err)
				}
			}
			if !maps.Equal(pod.Labels, test.want) || !maps.Equal(binding.Labels, test.want) {
				t.Errorf("labels of the pod %v, of the binding %v, want %v", pod.Labels, binding.Labels, test.want)
			}
		})
	}
}

func TestUpdatesAndOtherSubresourcesKeepTheirLabels(t *testing.T) {
	plugin := start(t, true)
	pod := admissiontest.Pod(func(p *corev1.Pod) { p.Spec.NodeName = "both" })
	for _, r := range []admissiontest.Request{{Object: pod, Old: pod.DeepCopy()}, {Object: pod, Subresource: "eviction"}} {
		if err := plugin.Send(t, r); err != nil || len(pod.Labels) > 0 {
			t.Errorf("%+v: labels %v, error %v", r, pod.Labels, err)
		}
	}
}

func TestThePluginNeedsTheGatesOfTheRelease(t *testing.T) {
	_, err := admissiontest.Server{}.TryStart(t, func(plugins *admission.Plugins) {
		Register(plugins, func() (bool, error) { return false, errors.New("broken") })
	})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v, want broken", err)
	}
}
