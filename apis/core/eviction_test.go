package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

const runningPod = `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`

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

func TestJudgeEviction(t *testing.T) {
	const unready = `status: {phase: Running, conditions: [{type: Ready, status: "False"}]}`
	for _, test := range []struct {
		rule, pod string
		budgets   []*policyv1.PodDisruptionBudget
		want      string
	}{
		{"a running pod costs a disruption", runningPod, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "charge b"},
		{"without a budget it goes", runningPod, nil, "delete"},
		{"a budget for others does not count", runningPod, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchLabels["app"] = "other"
		})}, "delete"},
		{"an invalid selector selects nothing", runningPod, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Odd"}}
		})}, "delete"},
		{"two budgets are one too many", runningPod, []*policyv1.PodDisruptionBudget{budget("b", nil), budget("c", nil)}, "500"},
		{"a pod that succeeded disrupts nothing", `status: {phase: Succeeded}`, []*policyv1.PodDisruptionBudget{budget("b", nil), budget("c", nil)}, "delete"},
		{"a pod that failed disrupts nothing", `status: {phase: Failed}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete"},
		{"a pod that ends disrupts nothing more", `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Running}}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete"},
		{"a pending pod goes as long as it is pending", `status: {phase: Pending}`, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete exactly"},
		{"an unready pod goes if enough others are healthy", unready, []*policyv1.PodDisruptionBudget{budget("b", nil)}, "delete exactly b"},
		{"an unready pod stays if too few are healthy", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy = 1
		})}, "charge b"},
		{"an unready pod stays if the budget is not known yet", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy, b.Status.DesiredHealthy = 0, 0
		})}, "charge b"},
		{"an unready pod always goes if the budget says so", unready, []*policyv1.PodDisruptionBudget{budget("b", func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy = 0
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		})}, "delete exactly b"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			verdict, err := judgeEviction(podOf(t, test.pod), test.budgets)
			if got := spell(verdict, err); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func spell(v evictionVerdict, err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == 500 {
		return "500"
	}
	words := []string{"delete"}
	if v.Charge {
		words[0] = "charge"
	}
	if v.Exactly {
		words = append(words, "exactly")
	}
	if v.Budget != nil {
		words = append(words, v.Budget.Name)
	}
	return strings.Join(words, " ")
}

func TestChargeBudget(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(b *policyv1.PodDisruptionBudget)
		reason metav1.StatusReason
		retry  int32
		cause  string
	}{
		{"a disruption is taken", nil, "", 0, ""},
		{"a budget whose controller lags is asked later", func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 },
			metav1.StatusReasonTooManyRequests, 10, "The disruption budget b is still being processed by the server."},
		{"no disruption is left", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 0, 2 },
			metav1.StatusReasonTooManyRequests, 0, "The disruption budget b needs 2 healthy pods and has 2 currently"},
		{"a failed sync is the first thing to say", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 0, 0
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "no scale"}}
		}, metav1.StatusReasonTooManyRequests, 0, "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		{"the condition explains the rest", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed = 0
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: "Busy", Message: "wait"}}
		}, metav1.StatusReasonTooManyRequests, 0, "The disruption budget b does not allow evicting pods currently (Busy): wait"},
		{"a negative number is an error", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = -1 }, metav1.StatusReasonForbidden, 0, ""},
		{"too many evictions are under way", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptedPods = map[string]metav1.Time{}
			for i := range maxDisruptedPods + 1 {
				b.Status.DisruptedPods[strings.Repeat("x", i+1)] = metav1.Time{}
			}
		}, metav1.StatusReasonForbidden, 0, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b, now := budget("b", test.change), time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
			err := chargeBudget(b, "web", now)
			if apierrors.ReasonForError(err) != test.reason && (err != nil || test.reason != "") {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if err == nil {
				if b.Status.DisruptionsAllowed != 0 || !b.Status.DisruptedPods["web"].Time.Equal(now) || !meta.IsStatusConditionFalse(b.Status.Conditions, policyv1.DisruptionAllowedCondition) {
					t.Errorf("charged budget: %+v", b.Status)
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
			if test.cause != "" && (len(details.Causes) != 1 || details.Causes[0].Type != policyv1.DisruptionBudgetCause || details.Causes[0].Message != test.cause) {
				t.Errorf("causes %+v, want %q", details.Causes, test.cause)
			}
		})
	}
}

func TestEvict(t *testing.T) {
	for _, test := range []struct {
		rule    string
		pod     string
		budget  func(b *policyv1.PodDisruptionBudget)
		options *metav1.DeleteOptions
		dryRun  bool
		// meanwhile changes the pod when it is first read for writing.
		meanwhile func(p *corev1.Pod)
		reason    metav1.StatusReason
		deleted   bool
		allowed   int32
	}{
		{rule: "a pod is deleted at the cost of a disruption", pod: runningPod, deleted: true, allowed: 0},
		{rule: "a dry run costs nothing and deletes nothing", pod: runningPod, dryRun: true, allowed: 1},
		{rule: "a dry run can be asked for in the body", pod: runningPod, options: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, allowed: 1},
		{rule: "without disruptions left the pod stays", pod: runningPod,
			budget: func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 0 }, reason: metav1.StatusReasonTooManyRequests, allowed: 0},
		{rule: "a pending pod that starts meanwhile is judged again", pod: `status: {phase: Pending}`,
			meanwhile: func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				setPodCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			}, deleted: true, allowed: 0},
		{rule: "an unready pod that gets ready meanwhile stays", pod: `status: {phase: Running}`,
			meanwhile: func(p *corev1.Pod) {
				setPodCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			}, reason: metav1.StatusReasonTooManyRequests, allowed: 1},
		{rule: "an unready pod goes for nothing", pod: `status: {phase: Running}`, deleted: true, allowed: 1},
		{rule: "the client's precondition holds", pod: `status: {phase: Pending}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "the client's version is not judged again", pod: `status: {phase: Pending}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("7")}}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "an option that makes no sense is refused", pod: runningPod,
			options: &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: ptr.To(true)}, reason: metav1.StatusReasonInvalid, allowed: 1},
	} {
		t.Run(test.rule, func(t *testing.T) {
			stores := newStores(podOf(t, test.pod), budget("b", test.budget))
			stores[podResource].meanwhile = test.meanwhile
			_, err := evict(t.Context(), stores.env(), resource.ActionRequest{
				Namespace: "default", Name: "web", DryRun: test.dryRun,
				Input: &policyv1.Eviction{DeleteOptions: test.options},
			})
			if got := apierrors.ReasonForError(err); err != nil && got != test.reason || err == nil && test.reason != "" {
				t.Errorf("error %v, want %q", err, test.reason)
			}
			if stores[podResource].deleted != test.deleted {
				t.Errorf("deleted: %v, want %v", stores[podResource].deleted, test.deleted)
			}
			if got := stores[budgetResource].obj.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed; got != test.allowed {
				t.Errorf("%d disruptions left, want %d", got, test.allowed)
			}
			if pod := stores[podResource].obj.(*corev1.Pod); podConditionIs(pod, corev1.DisruptionTarget, corev1.ConditionTrue) != test.deleted {
				t.Errorf("conditions: %+v", pod.Status.Conditions)
			}
		})
	}
}

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
		{rule: "an assigned pod stays", pod: `spec: {nodeName: m}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: `pod web is already assigned to node "m"`},
		{rule: "a gated pod gets no node", pod: `spec: {schedulingGates: [{name: a}]}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "pod web has non-empty .spec.schedulingGates"},
		{rule: "a deleted pod gets no node", pod: `metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}`, binding: corev1.Binding{Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "is being deleted"},
		{rule: "the binding's uid is the pod's", pod: `metadata: {uid: a}`, binding: corev1.Binding{ObjectMeta: metav1.ObjectMeta{UID: "b"}, Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "UID in precondition: b, UID in object meta: a"},
		{rule: "the binding's version is the pod's", binding: corev1.Binding{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Target: corev1.ObjectReference{Name: "n"}}, reason: metav1.StatusReasonConflict, message: "ResourceVersion in precondition: 7"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			stores := newStores(podOf(t, test.pod))
			test.binding.Annotations, test.binding.Labels = map[string]string{"a": "b"}, map[string]string{"zone": "z"}
			_, err := bind(t.Context(), stores.env(), &test.binding, "default", "web", false)
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
			if pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || pod.Labels["zone"] != "z" || pod.Labels["app"] != "web" ||
				!podConditionIs(pod, corev1.PodScheduled, corev1.ConditionTrue) {
				t.Errorf("bound pod: %+v", pod)
			}
		})
	}
}

// store holds one object of a type, as a server does.
type store struct {
	obj       runtime.Object
	deleted   bool
	meanwhile func(p *corev1.Pod)
}

type stores map[schema.GroupResource]*store

// newStores holds a pod and, if there is one, a budget.
func newStores(pod *corev1.Pod, budgets ...*policyv1.PodDisruptionBudget) stores {
	s := stores{podResource: {obj: pod}, budgetResource: {}}
	for _, b := range budgets {
		s[budgetResource].obj = b
	}
	return s
}

func (s stores) env() *resource.Env {
	return &resource.Env{Objects: func(r schema.GroupResource) resource.Objects { return s[r] }}
}

func (s *store) Get(context.Context, string, string) (runtime.Object, error) {
	return s.obj.DeepCopyObject(), nil
}

func (s *store) List(context.Context, string, labels.Selector) ([]runtime.Object, error) {
	return []runtime.Object{s.obj.DeepCopyObject()}, nil
}

func (s *store) Update(_ context.Context, _, _ string, dryRun bool, change func(obj runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	if s.meanwhile != nil {
		s.meanwhile(s.obj.(*corev1.Pod))
		s.obj.(metav1.Object).SetResourceVersion("2")
		s.meanwhile = nil
	}
	obj, err := change(s.obj.DeepCopyObject())
	if err != nil || dryRun {
		return obj, err
	}
	obj.(metav1.Object).SetResourceVersion(s.obj.(metav1.Object).GetResourceVersion() + "1")
	s.obj = obj
	return obj, nil
}

func (s *store) Delete(_ context.Context, _, _ string, options *metav1.DeleteOptions) error {
	if err := fulfils(s.obj.(*corev1.Pod), options.Preconditions); err != nil {
		return apierrors.NewConflict(podResource, "web", err)
	}
	s.deleted = len(options.DryRun) == 0
	return nil
}
