package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/core/disruptionbudget"
	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/resource/resourcetest"
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

// The field manager of a request converts its body to the version in which it came.
func TestAnEvictionOfAnOlderVersionIsConvertedBack(t *testing.T) {
	s := runtime.NewScheme()
	for _, kind := range Kinds() {
		if kind.Kind().Name != "pods" {
			continue
		}
		if err := kind.Kind().AddToScheme(s); err != nil {
			t.Fatal(err)
		}
	}
	in := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
	out := &policyv1beta1.Eviction{}
	if err := s.Convert(in, out, nil); err != nil || out.Name != "a" || out.DeleteOptions == nil || len(out.DeleteOptions.DryRun) != 1 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestEvict(t *testing.T) {
	for _, test := range []struct {
		rule    string
		pod     string
		budget  func(b *policyv1.PodDisruptionBudget)
		options *metav1.DeleteOptions
		dryRun  bool
		// meanwhile changes the pod between the read and the first write.
		meanwhile func(p *corev1.Pod)
		reason    metav1.StatusReason
		deleted   bool
		allowed   int32
	}{
		{rule: "a ready pod is deleted and takes a disruption", pod: runningPod, deleted: true, allowed: 0},
		{rule: "a dry run takes no disruption and deletes nothing", pod: runningPod, dryRun: true, allowed: 1},
		{rule: "a dry run can be requested in the body", pod: runningPod, options: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, allowed: 1},
		{rule: "the pod stays if no disruption is allowed", pod: runningPod,
			budget: func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 0 }, reason: metav1.StatusReasonTooManyRequests, allowed: 0},
		{rule: "the eviction of a pending pod that starts meanwhile is decided again", pod: `status: {phase: Pending}`,
			meanwhile: func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				setPodCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, resourcetest.Now)
			}, deleted: true, allowed: 0},
		{rule: "an unready pod that becomes ready meanwhile stays", pod: `status: {phase: Running}`,
			meanwhile: func(p *corev1.Pod) {
				setPodCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, resourcetest.Now)
			}, reason: metav1.StatusReasonTooManyRequests, allowed: 1},
		{rule: "an unready pod that becomes ready meanwhile stays, also with an empty version of the client", pod: `status: {phase: Running}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("")}},
			meanwhile: func(p *corev1.Pod) {
				setPodCondition(p, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}, resourcetest.Now)
			}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "an unready pod whose version is not the client's stays", pod: `status: {phase: Running}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("7")}}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "an unready pod is deleted and takes no disruption", pod: `status: {phase: Running}`, deleted: true, allowed: 1},
		{rule: "the client's precondition must be met", pod: `status: {phase: Pending}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "an eviction with the client's version is not retried", pod: `status: {phase: Pending}`,
			options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("7")}}, reason: metav1.StatusReasonConflict, allowed: 1},
		{rule: "an unsupported option is invalid", pod: runningPod,
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
			if got := stores[disruptionbudget.Resource].obj.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed; got != test.allowed {
				t.Errorf("%d disruptions left, want %d", got, test.allowed)
			}
			if pod := stores[podResource].obj.(*corev1.Pod); podspec.IsConditionTrue(&pod.Status, corev1.DisruptionTarget) != test.deleted {
				t.Errorf("conditions: %+v", pod.Status.Conditions)
			}
		})
	}
}
