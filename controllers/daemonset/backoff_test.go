package daemonset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestFailedPodsAreDeletedWithAGrowingDelayForEachNode(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	b := newBackoff(clock)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "log", Generation: 1}}
	on := func(node string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}} }
	due := func(pods ...*corev1.Pod) (int, time.Duration) {
		now, next := b.due(ds, pods)
		return len(now), next
	}
	for _, step := range []struct {
		rule string
		wait time.Duration
		pods []*corev1.Pod
		now  int
		next time.Duration
	}{
		{"the first failure has no delay", 0, []*corev1.Pod{on("a")}, 1, 0},
		{"the second one waits", 0, []*corev1.Pod{on("a")}, 0, time.Second},
		{"another node does not", 0, []*corev1.Pod{on("a"), on("b")}, 1, time.Second},
		{"after the delay it is due", time.Second, []*corev1.Pod{on("a")}, 1, 0},
		{"the third one waits twice as long", time.Second, []*corev1.Pod{on("a")}, 0, 2 * time.Second},
		{"after a long time the delay begins again", 2 * maxFailureDelay, []*corev1.Pod{on("a")}, 1, 0},
	} {
		clock.Step(step.wait)
		if now, next := due(step.pods...); now != step.now || next != step.next {
			t.Errorf("%s: %d due, the next in %s", step.rule, now, next)
		}
	}
	ds.Generation++
	if now, _ := due(on("a")); now != 1 {
		t.Error("a changed set does not begin again")
	}
}

func TestTheSoonerOfTwoDelays(t *testing.T) {
	for _, tt := range [][3]time.Duration{{0, 0, 0}, {1, 0, 1}, {0, 1, 1}, {2, 1, 1}, {1, 2, 1}} {
		if got := sooner(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%d, %d: %d", tt[0], tt[1], got)
		}
	}
}
