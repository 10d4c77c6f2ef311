package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/podspec"
)

func TestBind(t *testing.T) {
	for _, test := range []struct {
		rule, pod string
		binding   corev1.Binding
		reason    metav1.StatusReason
		message   string
	}{
		{rule: "an unassigned pod gets the node", binding: corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}},
		{rule: "the target is a node", binding: corev1.Binding{Target: corev1.ObjectReference{Kind: "Pod", Name: "n"}}, reason: metav1.StatusReasonInvalid, message: "target.kind"},
		{rule: "the target has a name", reason: metav1.StatusReasonInvalid, message: "target.name: Required value"},
		{rule: "the target's name is one of nodes", binding: corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "Bad_Name"}}, reason: metav1.StatusReasonInvalid, message: `target.name: Invalid value: "Bad_Name"`},
		{rule: "the same without a kind", binding: corev1.Binding{Target: corev1.ObjectReference{Name: "Bad_Name"}}, reason: metav1.StatusReasonInvalid, message: `target.name: Invalid value: "Bad_Name"`},
		{rule: "an assigned pod stays", pod: `spec: {nodeName: m}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: `pod web is already assigned to node "m"`},
		{rule: "a gated pod gets no node", pod: `spec: {schedulingGates: [{name: a}]}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "pod web has non-empty .spec.schedulingGates"},
		{rule: "a deleted pod gets no node", pod: `metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "is being deleted"},
		{rule: "the binding's uid is the pod's", pod: `metadata: {uid: a}`, binding: corev1.Binding{ObjectMeta: metav1.ObjectMeta{UID: "b"}, Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "UID in precondition: b, UID in object meta: a"},
		{rule: "the binding's version is the pod's", binding: corev1.Binding{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "ResourceVersion in precondition: 7"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			stores := newStores(podOf(t, test.pod))
			test.binding.Annotations, test.binding.Labels = map[string]string{"a": "b", "pod.beta.kubernetes.io/init-containers": "[]"}, map[string]string{"zone": "z"}
			env := stores.env()
			env.BindingLabels = true
			_, err := bind(t.Context(), env, &test.binding, "default", "web", false)
			pod := stores[podResource].obj.(*corev1.Pod)
			if err != nil {
				if apierrors.ReasonForError(err) != test.reason || !strings.Contains(err.Error(), test.message) {
					t.Errorf("error %v, want %s with %q", err, test.reason, test.message)
				}
				return
			}
			if test.reason != "" {
				t.Fatalf("no error, want %s", test.reason)
			}
			if _, found := pod.Annotations["pod.beta.kubernetes.io/init-containers"]; found {
				t.Error("the pod has an annotation that only old releases read")
			}
			if pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || pod.Labels["zone"] != "z" || pod.Labels["app"] != "web" ||
				!podspec.IsConditionTrue(&pod.Status, corev1.PodScheduled) {
				t.Errorf("bound pod: %+v", pod)
			}
		})
	}
}

func TestAPodGetsTheLabelsOfItsBindingOnlyWithTheGate(t *testing.T) {
	for _, on := range []bool{false, true} {
		stores := newStores(podOf(t, ""))
		env := stores.env()
		env.BindingLabels = on
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "z"}}, Target: corev1.ObjectReference{Name: "n"}}
		if _, err := bind(t.Context(), env, b, "default", "web", false); err != nil {
			t.Fatal(err)
		}
		pod := stores[podResource].obj.(*corev1.Pod)
		if _, labelled := pod.Labels["zone"]; labelled != on || pod.Spec.NodeName != "n" {
			t.Errorf("gate %t: %+v", on, pod)
		}
	}
}
