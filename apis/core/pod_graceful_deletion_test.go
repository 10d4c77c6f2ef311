package core

import (
	"testing"

	"k8s.io/utils/ptr"
)

func TestPodGracePeriod(t *testing.T) {
	for _, test := range []struct {
		rule, change string
		requested    *int64
		want         int64
	}{
		{"a pod without a node is deleted at once", ``, nil, 0},
		{"a pod without a node is deleted at once, whatever the client requests", ``, ptr.To[int64](60), 0},
		{"the default is 30 seconds", `spec: {nodeName: n}`, nil, 30},
		{"the spec's grace period comes before the default", `spec: {nodeName: n, terminationGracePeriodSeconds: 5}`, nil, 5},
		{"the client's grace period comes before the spec's", `spec: {nodeName: n}`, ptr.To[int64](60), 60},
		{"the client's zero deletes at once", `spec: {nodeName: n}`, ptr.To[int64](0), 0},
		{"a negative period is one second", `spec: {nodeName: n}`, ptr.To[int64](-1), 1},
		{"a succeeded pod is deleted at once", `{spec: {nodeName: n}, status: {phase: Succeeded}}`, nil, 0},
		{"a failed pod is deleted at once", `{spec: {nodeName: n}, status: {phase: Failed}}`, ptr.To[int64](60), 0},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := podGracePeriod(podOf(t, test.change), test.requested); got != test.want {
				t.Errorf("%d seconds, want %d", got, test.want)
			}
		})
	}
}
