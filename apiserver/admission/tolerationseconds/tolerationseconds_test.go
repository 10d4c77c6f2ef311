package tolerationseconds

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

func TestPodsGetTheDefaultTolerations(t *testing.T) {
	const notReady, unreachable = corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	type tolerations = []corev1.Toleration
	for _, test := range []struct {
		name        string
		given       tolerations
		subresource string
		want        string
	}{
		{"a pod without tolerations", nil, "", "not-ready:NoExecute:30 unreachable:NoExecute:40"},
		{"a pod with toleration seconds of its own", tolerations{{Key: notReady, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To[int64](5)}}, "",
			"not-ready:NoExecute:5 unreachable:NoExecute:40"},
		{"a pod that tolerates a taint without end", tolerations{{Key: unreachable, Operator: "Exists"}}, "", "unreachable:: not-ready:NoExecute:30"},
		{"a pod that tolerates all taints", tolerations{{Operator: "Exists"}}, "", "::"},
		{"a toleration of another effect does not count", tolerations{{Key: notReady, Operator: "Exists", Effect: "NoSchedule"}}, "",
			"not-ready:NoSchedule: not-ready:NoExecute:30 unreachable:NoExecute:40"},
		{"the status of a pod", nil, "status", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.given}}
			admit(t, pod, test.subresource)
			var got []string
			for _, t := range pod.Spec.Tolerations {
				seconds := ""
				if t.TolerationSeconds != nil {
					seconds = fmt.Sprint(*t.TolerationSeconds)
				}
				got = append(got, fmt.Sprintf("%s:%s:%s", strings.TrimPrefix(t.Key, "node.kubernetes.io/"), t.Effect, seconds))
			}
			if got := strings.Join(got, " "); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			before := len(pod.Spec.Tolerations)
			if admit(t, pod, test.subresource); len(pod.Spec.Tolerations) != before {
				t.Errorf("the second time changes it: %v", pod.Spec.Tolerations)
			}
		})
	}
}

func TestOtherKindsStayAsTheyAre(t *testing.T) { admit(t, &corev1.Node{}, "") }

func admit(t *testing.T, obj runtime.Object, subresource string) {
	t.Helper()
	p := &plugin{Handler: admission.NewHandler(admission.Create), Defaults: Defaults{NotReady: 30, Unreachable: 40}}
	a := admission.NewAttributesRecord(obj, nil, schema.GroupVersionKind{}, "ns", "name", schema.GroupVersionResource{}, subresource, admission.Create, nil, false, nil)
	if err := p.Admit(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
}
