package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
)

// TestAPodThatFailsAgainAndAgainIsRecreatedAfterDelaysThatGrow: the first time without one.
func TestAPodThatFailsAgainAndAgainIsRecreatedAfterDelaysThatGrow(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	b := newBackoff(clock)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "db", Generation: 1}}
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}, Status: corev1.PodStatus{Phase: phase}}
	}
	failed, other := pod("db-0", corev1.PodFailed), pod("db-1", corev1.PodFailed)
	fails := func(want time.Duration) {
		t.Helper()
		if got := b.delays(set, []*corev1.Pod{failed})[failed.UID]; got != want {
			t.Errorf("delay %s, want %s", got, want)
		}
		clock.Step(want)
		if left := b.delays(set, []*corev1.Pod{failed}); len(left) > 0 {
			t.Errorf("after the delay there are left %v", left)
		}
		b.deleted(set, failed)
	}
	for _, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60} {
		fails(want * time.Second)
	}
	if delays := b.delays(set, []*corev1.Pod{other, pod("db-0", corev1.PodRunning)}); len(delays) > 0 {
		t.Errorf("delays %v of another pod, or one that runs", delays)
	}
	set.Generation = 2
	fails(0)
	fails(time.Second)
	clock.Step(2*maxRecreateDelay + time.Second)
	fails(0)
}
