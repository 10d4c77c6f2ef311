package scheduler

import (
	"testing"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestConditionOfAGroup(t *testing.T) {
	const condition = schedulingv1beta1.PodGroupInitiallyScheduled
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1000, 0)
	had := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: condition, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(start), ObservedGeneration: 1}}
	}
	for _, test := range []struct {
		rule            string
		before          []metav1.Condition
		reason, message string
		replaced        bool // the group was replaced by another of its name
		want            string
		changed         bool // the time of the condition is that of the write
	}{
		{"a group fits nowhere", nil, "Unschedulable", "m", false, "False Unschedulable m", true},
		{"it is scheduled", had(metav1.ConditionFalse, "Unschedulable", "m"), "Scheduled", "", false, "True Scheduled ", true},
		{"the reason changes", had(metav1.ConditionFalse, "Unschedulable", "m"), "SchedulerError", "e", false, "False SchedulerError e", false},
		{"one that was scheduled stays so", had(metav1.ConditionTrue, "Scheduled", ""), "Unschedulable", "m", false, "True Scheduled ", false},
		{"another group of the name", nil, "Scheduled", "", true, "", false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			group := gangOf("g", 2)
			group.Status.Conditions = test.before
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(group).WithStatusSubresource(group).Build()
			r := newGroupReconciler(c, func() time.Time { return start.Add(time.Minute) })
			decided := gangOf("g", 2)
			if test.replaced {
				decided.UID = "earlier"
			}
			r.enqueue(&groupResult{group: decided, reason: test.reason, message: test.message})
			if _, err := r.Reconcile(t.Context(), client.ObjectKeyFromObject(group)); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(group), group); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range group.Status.Conditions {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
				if changed := c.LastTransitionTime.After(start); changed != test.changed || c.ObservedGeneration != 1 {
					t.Errorf("the time is that of the write: %v, want %v; generation %d", changed, test.changed, c.ObservedGeneration)
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if len(r.results) > 0 {
				t.Errorf("%d results are left", len(r.results))
			}
		})
	}
}

func TestAGroupThatIsScheduledIsReportedThoughItsNextPodFitsNowhere(t *testing.T) {
	r := newGroupReconciler(nil, time.Now)
	group := gangOf("g", 0)
	r.enqueue(&groupResult{group: group, reason: reasonScheduled})
	r.enqueue(&groupResult{group: group, reason: schedulingv1beta1.PodGroupReasonUnschedulable})
	if got := r.results[client.ObjectKeyFromObject(group)].reason; got != reasonScheduled {
		t.Errorf("reason %s", got)
	}
}
