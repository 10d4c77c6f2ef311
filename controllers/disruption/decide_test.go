package disruption

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/podspec"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestExpected(t *testing.T) {
	for _, test := range []struct {
		rule        string
		least, most string
		scale       int32
		want        counts
	}{
		{"minAvailable as a number", "2", "", 5, counts{5, 2}},
		{"minAvailable may exceed the scale", "7", "", 5, counts{5, 7}},
		{"a percentage is rounded up", "50%", "", 5, counts{5, 3}},
		{"maxUnavailable is subtracted from the scale", "", "2", 5, counts{5, 3}},
		{"maxUnavailable as a percentage is rounded up, too", "", "50%", 5, counts{5, 2}},
		{"the number of healthy pods is not negative", "", "7", 5, counts{5, 0}},
		{"a budget without a limit expects no pods", "", "", 5, counts{0, 0}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{}
			if test.least != "" {
				b.Spec.MinAvailable = ptr.To(intstr.Parse(test.least))
			}
			if test.most != "" {
				b.Spec.MaxUnavailable = ptr.To(intstr.Parse(test.most))
			}
			got, err := expected(b, test.scale)
			if err != nil || got != test.want {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
			if counted := test.most == "" && test.least != "50%"; dependsOnScale(b) == counted {
				t.Errorf("dependsOnScale = %t", !counted)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	ready, unready, ending := pod("ready"), pod("unready"), pod("ending")
	unready.Status.Conditions = nil
	ending.DeletionTimestamp = &metav1.Time{Time: now}
	for _, test := range []struct {
		rule   string
		pods   []*corev1.Pod
		wanted counts
		before policyv1.PodDisruptionBudgetStatus
		want   string
	}{
		{"ready pods are healthy, and those beyond the needed number may be disrupted",
			[]*corev1.Pod{ready, pod("b"), pod("c")}, counts{3, 1}, policyv1.PodDisruptionBudgetStatus{}, "3 of 3, needs 1, allows 2, SufficientPods since now"},
		{"pods that are not ready or are being deleted are not healthy",
			[]*corev1.Pod{ready, unready, ending}, counts{3, 1}, policyv1.PodDisruptionBudgetStatus{}, "1 of 3, needs 1, allows 0, InsufficientPods since now"},
		{"a pod whose eviction was allowed is not healthy",
			[]*corev1.Pod{ready, pod("b")}, counts{2, 1}, policyv1.PodDisruptionBudgetStatus{DisruptedPods: disruptedPods("b", time.Minute)},
			"1 of 2, needs 1, allows 0, InsufficientPods since now, waits for map[b]"},
		{"it counts again if it was not deleted within two minutes",
			[]*corev1.Pod{ready, pod("b")}, counts{2, 1}, policyv1.PodDisruptionBudgetStatus{DisruptedPods: disruptedPods("b", 2*time.Minute)},
			"2 of 2, needs 1, allows 1, SufficientPods since now"},
		{"deleted pods are removed from disruptedPods",
			[]*corev1.Pod{ready, ending}, counts{2, 1}, policyv1.PodDisruptionBudgetStatus{DisruptedPods: disruptedPods("ending", time.Second)},
			"1 of 2, needs 1, allows 0, InsufficientPods since now"},
		{"a budget that expects no pods allows no disruptions", nil, counts{0, 0}, policyv1.PodDisruptionBudgetStatus{}, "0 of 0, needs 0, allows 0, InsufficientPods since now"},
		{"lastTransitionTime changes with the status of the condition only",
			[]*corev1.Pod{ready}, counts{1, 1}, policyv1.PodDisruptionBudgetStatus{Conditions: []metav1.Condition{{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "no",
				LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
			}}}, "1 of 1, needs 1, allows 0, InsufficientPods since 1h0m0s"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: test.before}
			d := evictions(b, test.pods, now)
			got := nextStatus(b, test.pods, test.wanted, d.pending, now)
			if diff := cmp.Diff(test.want, describe(got)); diff != "" {
				t.Error(diff)
			}
			if got.ObservedGeneration != 3 || got.Conditions[0].ObservedGeneration != 3 {
				t.Error("observedGeneration is not that of the budget")
			}
		})
	}
}

func TestEvictions(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{
		"soon": ago(90 * time.Second), "later": ago(time.Second), "never": ago(3 * time.Minute), "gone": ago(time.Second),
	}}}
	d := evictions(b, []*corev1.Pod{pod("later"), pod("soon"), pod("never"), pod("other")}, now)
	if len(d.pending) != 2 || d.expiry.Sub(now) != 30*time.Second || len(d.expired) != 1 || d.expired[0].Name != "never" {
		t.Errorf("%+v", d)
	}
}

func TestFailedStatusAllowsNothing(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Generation: 4},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 3, DisruptionsAllowed: 2, CurrentHealthy: 5, DesiredHealthy: 3, ExpectedPods: 5},
	}
	got := failedStatus(b, errors.New("no scale"), now)
	if diff := cmp.Diff("5 of 5, needs 3, allows 0, SyncFailed since now: no scale", describe(got)); diff != "" {
		t.Error(diff)
	}
	if got.ObservedGeneration != 3 {
		t.Error("a failed sync changes observedGeneration")
	}
}

func TestDisruptionTargetSince(t *testing.T) {
	target := func(change func(*corev1.Pod, *corev1.PodCondition)) *corev1.Pod {
		p := pod("a")
		c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", LastTransitionTime: ago(time.Hour)}
		if change != nil {
			change(p, &c)
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
		return p
	}
	for _, test := range []struct {
		rule string
		pod  *corev1.Pod
		want bool
	}{
		{"the condition expires", target(nil), true},
		{"a pod without the condition is ignored", pod("a"), false},
		{"a pod that is being deleted is ignored", target(func(p *corev1.Pod, _ *corev1.PodCondition) { p.DeletionTimestamp = &metav1.Time{} }), false},
		{"a terminated pod is ignored", target(func(p *corev1.Pod, _ *corev1.PodCondition) { p.Status.Phase = corev1.PodFailed }), false},
		{"a termination by the node does not expire", target(func(_ *corev1.Pod, c *corev1.PodCondition) { c.Reason = corev1.PodReasonTerminationByKubelet }), false},
		{"a condition that is false is ignored", target(func(_ *corev1.Pod, c *corev1.PodCondition) { c.Status = corev1.ConditionFalse }), false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if since := disruptionTargetSince(test.pod); (since != nil) != test.want || since != nil && !since.Equal(now.Add(-time.Hour)) {
				t.Errorf("%v", since)
			}
		})
	}
}

func TestDisruptionTargetIsResetAfterTwoMinutes(t *testing.T) {
	stale := pod("a")
	stale.Namespace, stale.Generation = "default", 3
	stale.Status.Conditions = append(stale.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: ago(time.Minute),
	})
	clock := now
	r := &targets{
		client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(stale).WithStatusSubresource(stale).Build(),
		now:    func() time.Time { return clock },
	}
	req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(stale)}
	if result, err := r.Reconcile(t.Context(), req); err != nil || result.RequeueAfter != time.Minute {
		t.Fatalf("the pod is not requeued for the end of the two minutes: %v, %v", result, err)
	}
	clock = clock.Add(time.Minute)
	if _, err := r.Reconcile(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Get(t.Context(), req.NamespacedName, stale); err != nil {
		t.Fatal(err)
	}
	want := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(clock)}
	if diff := cmp.Diff(want, *podspec.Condition(&stale.Status, corev1.DisruptionTarget), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Error(diff)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func disruptedPods(name string, since time.Duration) map[string]metav1.Time {
	return map[string]metav1.Time{name: ago(since)}
}

func describe(s policyv1.PodDisruptionBudgetStatus) string {
	c := s.Conditions[0]
	since := "now"
	if d := now.Sub(c.LastTransitionTime.Time); d > 0 {
		since = d.String()
	}
	text := fmt.Sprintf("%d of %d, needs %d, allows %d, %s since %s", s.CurrentHealthy, s.ExpectedPods, s.DesiredHealthy, s.DisruptionsAllowed, c.Reason, since)
	if (c.Status == metav1.ConditionTrue) != (s.DisruptionsAllowed > 0) {
		text += ", condition " + string(c.Status)
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	if len(s.DisruptedPods) > 0 {
		names := map[string]bool{}
		for name := range s.DisruptedPods {
			names[name] = true
		}
		text += ", waits for map["
		for name := range names {
			text += name
		}
		text += "]"
	}
	return text
}
