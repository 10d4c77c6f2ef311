package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
	"svc.dev/svc/internal/releases"
)

func TestDecodingCompletesPodLevelResourcesUntilTheirGateIsOn(t *testing.T) {
	for r := releases.Oldest; r <= releases.Newest; r++ {
		for _, set := range []*bool{nil, ptr.To(true), ptr.To(false)} {
			k := kindNamed(t, "Pod", r, "PodLevelResourcesFixDefaulting", set)
			p := resourcetest.Object(t, k, podBase, `spec: {resources: {limits: {cpu: 4}}, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}`).(*corev1.Pod)
			want := "1"
			if ptr.Deref(set, r >= 37) {
				want = "0"
			}
			if got := p.Spec.Resources.Requests.Cpu().String(); got != want {
				t.Fatalf("at %v, gate %v: the request is %s, want %s", r, set, got, want)
			}
		}
	}
}
