package nodetaint

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestNewNodesAreTainted(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	for _, test := range []struct {
		rule        string
		given, want []corev1.Taint
	}{
		{"a node without taints", nil, []corev1.Taint{notReady}},
		{"a node with the taint", []corev1.Taint{notReady}, []corev1.Taint{notReady}},
		{"the taint with another effect is another taint", []corev1.Taint{other}, []corev1.Taint{other, notReady}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: test.given}}
			if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: node}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(node.Spec.Taints, test.want) {
				t.Errorf("taints %v", node.Spec.Taints)
			}
		})
	}
}

func TestUpdatesOfNodesKeepTheirTaints(t *testing.T) {
	node := &corev1.Node{}
	if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: node, Old: &corev1.Node{}}); err != nil || len(node.Spec.Taints) > 0 {
		t.Errorf("%v, taints %v", err, node.Spec.Taints)
	}
}
