package disruptionbudget

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const ready = `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`

func budget(name string, change func(b *policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2},
	}
	if change != nil {
		change(b)
	}
	return b
}

// podOf makes a pod that the budgets of this test select.
func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web"}}}
	if err := yaml.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecide(t *testing.T) {
	const unready = `status: {phase: Running, conditions: [{type: Ready, status: "False"}]}`
	for _, test := range []struct {
		rule, pod string
		budgets   []*policyv1.PodDisruptionBudget
		want      string
	}{
		{"the eviction of a ready pod takes a disruption", ready, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "take b"},
		{"a pod that no budget selects is deleted", ready, nil, "delete"},
		{"a budget that selects other pods does not count", ready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchLabels["app"] = "other"
		})}, "delete"},
		{"an invalid selector selects nothing", ready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Odd"}}
		})}, "delete"},
		{"a pod that two budgets select cannot be evicted", ready, []*policyv1.PodDisruptionBudget{budget("b", nil), budget("c", nil)}, "500"},
		{"the eviction of a succeeded pod is no disruption", `status: {phase: Succeeded}`, []*policyv1.PodDisruptionBudget{budget("b", nil), budget("c", nil)}, "delete"},
		{"the eviction of a failed pod is no disruption", `status: {phase: Failed}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete"},
		{"the eviction of a pod that is being deleted is no disruption", `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Running}}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete"},
		{"a pending pod is deleted if it is still pending", `status: {phase: Pending}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete same version"},
		{"an unready pod is deleted if enough others are healthy", unready, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete same version b"},
		{"an unready pod takes a disruption if too few are healthy", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy = 1
		})}, "take b"},
		{"an unready pod takes a disruption if the budget has no status yet", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy, b.Status.DesiredHealthy = 0, 0
		})}, "take b"},
		{"an unready pod is deleted if the policy is AlwaysAllow", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy = 0
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		})}, "delete same version b"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			decision, err := Decide(podOf(t, test.pod), test.budgets)
			if got := spell(decision, err); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// spell writes a decision as in the table.
func spell(d Decision, err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == 500 {
		return "500"
	}
	words := []string{"delete"}
	if d.Take {
		words = []string{"take"}
	}
	if d.SameVersion {
		words = append(words, "same version")
	}
	if d.Budget != nil {
		words = append(words, d.Budget.Name)
	}
	return strings.Join(words, " ")
}

func TestTake(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(b *policyv1.PodDisruptionBudget)
		reason metav1.StatusReason
		retry  int32
		cause  string
	}{
		{"a disruption is taken", nil, "", 0, ""},
		{"a budget that the controller has not processed is retried later", func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 },
			metav1.StatusReasonTooManyRequests, 10, "The disruption budget b is still being processed by the server."},
		{"no disruption is left", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 0, 2 },
			metav1.StatusReasonTooManyRequests, 0, "The disruption budget b needs 2 healthy pods and has 2 currently"},
		{"a failed sync comes before other reasons", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 0, 0
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "no scale"}}
		}, metav1.StatusReasonTooManyRequests, 0, "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		{"otherwise the condition gives the reason", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed = 0
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: "Busy", Message: "wait"}}
		}, metav1.StatusReasonTooManyRequests, 0, "The disruption budget b does not allow evicting pods currently (Busy): wait"},
		{"a negative number is an error", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = -1 }, metav1.StatusReasonForbidden, 0,
			"The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative"},
		{"too many evictions are in flight", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptedPods = map[string]metav1.Time{}
			for i := range maxDisruptedPods + 1 {
				b.Status.DisruptedPods[strings.Repeat("x", i+1)] = metav1.Time{}
			}
		}, metav1.StatusReasonForbidden, 0, "The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b, now := budget("b", test.change), time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
			err := Take(b, "web", now)
			if apierrors.ReasonForError(err) != test.reason && (err != nil || test.reason != "") {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if err == nil {
				if b.Status.DisruptionsAllowed != 0 || !b.Status.DisruptedPods["web"].Time.Equal(now) || !meta.IsStatusConditionFalse(b.Status.Conditions, policyv1.DisruptionAllowedCondition) {
					t.Errorf("budget after the disruption: %+v", b.Status)
				}
				return
			}
			var status *apierrors.StatusError
			if !errors.As(err, &status) {
				t.Fatalf("not a status: %v", err)
			}
			details := status.ErrStatus.Details
			if details.RetryAfterSeconds != test.retry {
				t.Errorf("retry after %d seconds, want %d", details.RetryAfterSeconds, test.retry)
			}
			if test.reason == metav1.StatusReasonForbidden && details.Kind != "poddisruptionbudget" {
				t.Errorf("resource %s, want that of kube-apiserver", details.Kind)
			}
			if test.cause != "" && (len(details.Causes) != 1 || details.Causes[0].Type != policyv1.DisruptionBudgetCause || details.Causes[0].Message != test.cause) {
				t.Errorf("causes %+v, want %q", details.Causes, test.cause)
			}
		})
	}
}
