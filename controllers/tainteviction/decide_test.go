package tainteviction

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEvictAt(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(1_000_000+seconds, 0) }
	taint := func(key string, added int64) corev1.Taint {
		return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(at(added)))}
	}
	tolerates := func(key string, seconds ...int64) corev1.Toleration {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		for _, s := range seconds {
			t.TolerationSeconds = &s
		}
		return t
	}
	all := func(ts ...corev1.Toleration) []corev1.Toleration { return ts }
	gone, other := taint("gone", 100), taint("other", 50)
	five := gone
	five.Value = "5"
	compares := func(than string) corev1.Toleration {
		return corev1.Toleration{Key: "gone", Operator: corev1.TolerationOpGt, Value: than}
	}
	now := &time.Time{}
	for _, test := range []struct {
		name        string
		bound       int64
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		want        *time.Time // nil for never
	}{
		{"no taint, no eviction", 0, nil, nil, nil},
		{"a taint that is not tolerated evicts at once", 0, nil, []corev1.Taint{gone}, now},
		{"a toleration of another taint does not help", 0, all(tolerates("other")), []corev1.Taint{gone}, now},
		{"a toleration without seconds prevents the eviction", 0, all(tolerates("gone")), []corev1.Taint{gone}, nil},
		{"the seconds count from when the taint was added", 0, all(tolerates("gone", 300)), []corev1.Taint{gone}, new(at(400))},
		{"or from when the pod was bound, if that was later", 200, all(tolerates("gone", 300)), []corev1.Taint{gone}, new(at(500))},
		{"zero seconds evict at once", 0, all(tolerates("gone", 0)), []corev1.Taint{gone}, now},
		{"negative seconds evict at once", 0, all(tolerates("gone", -5)), []corev1.Taint{gone}, now},
		{"the first toleration that matches decides", 0, all(tolerates("gone", 300), tolerates("gone", 10)), []corev1.Taint{gone}, new(at(400))},
		{"of several taints the earliest eviction decides", 0, all(tolerates("gone", 30), tolerates("other", 60)), []corev1.Taint{gone, other}, new(at(110))},
		{"a taint that is tolerated without seconds does not delay another's eviction", 0, all(tolerates("gone", 30), tolerates("other")), []corev1.Taint{gone, other}, new(at(130))},
		{"all taints must be tolerated", 0, all(tolerates("other", 60)), []corev1.Taint{other, gone}, now},
		{"a toleration may compare numbers", 0, all(compares("4")), []corev1.Taint{five}, nil},
		{"which must not be too small", 0, all(compares("5")), []corev1.Taint{five}, now},
		{"a toleration of everything tolerates", 0, all(corev1.Toleration{Operator: corev1.TolerationOpExists}), []corev1.Taint{gone, other}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.tolerations}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(test.bound))}}
			got, ok := evictAt(pod, test.taints, func(t corev1.Taint) time.Time { return t.TimeAdded.Time })
			switch {
			case test.want == nil && ok:
				t.Errorf("evicted at %v, want never", got)
			case test.want != nil && (!ok || !got.Equal(*test.want)):
				t.Errorf("evicted at %v (%v), want %v", got, ok, *test.want)
			}
		})
	}
}
