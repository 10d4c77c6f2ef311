package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// The cells of values that are missing.
const (
	unset   = "<unset>"
	unknown = "<unknown>"
)

func evictionColumns() []resource.Column[*lifecyclev1alpha1.Eviction] {
	report := lifecyclev1alpha1.ResponderStatus{}.SwaggerDoc()
	return []resource.Column[*lifecyclev1alpha1.Eviction]{
		resource.Name[*lifecyclev1alpha1.Eviction](),
		{Name: "Target", Description: lifecyclev1alpha1.EvictionSpec{}.SwaggerDoc()["target"], Value: func(e *lifecyclev1alpha1.Eviction) any {
			if e.Spec.Target.Pod == nil {
				return unset
			}
			return e.Spec.Target.Pod.Name
		}},
		{Name: "Target Type", Description: lifecyclev1alpha1.EvictionSpec{}.SwaggerDoc()["target"],
			Value: func(e *lifecyclev1alpha1.Eviction) any { return targetType(e.Spec.Target.Pod != nil) }},
		{Name: "Status", Description: lifecyclev1alpha1.EvictionStatus{}.SwaggerDoc()["conditions"],
			Value: func(e *lifecyclev1alpha1.Eviction) any {
				return progress(e.Status.ObservedGeneration, e.Status.Conditions)
			}},
		{Name: "Active Responder", Description: lifecyclev1alpha1.TargetResponder{}.SwaggerDoc()["state"], Value: activeResponder},
		{Name: "Responder Status", Description: report[""], Value: responderState},
		{Name: "Responder Expected Finish", Description: report["expectedCompletionTime"], Value: expectedEnd},
		{Name: "Requesters", Description: lifecyclev1alpha1.EvictionStatus{}.SwaggerDoc()["requesters"],
			Value: func(e *lifecyclev1alpha1.Eviction) any { return requestersCell(e.Status.Requesters) }},
		resource.Age[*lifecyclev1alpha1.Eviction](),
		{Name: "Responder Heartbeat", Priority: 1, Description: report["heartbeatTime"], Value: func(e *lifecyclev1alpha1.Eviction) any {
			return func(now time.Time) string {
				if _, r, _ := current(e); r != nil && r.HeartbeatTime != nil {
					return ago(now, r.HeartbeatTime)
				}
				return unset
			}
		}},
		{Name: "Responder Status Message", Priority: 1, Description: report["message"], Value: func(e *lifecyclev1alpha1.Eviction) any {
			if _, r, _ := current(e); r != nil {
				if message := strings.TrimSpace(ptr.Deref(r.Message, "")); message != "" {
					return message
				}
			}
			return unset
		}},
	}
}

func targetType(pod bool) string {
	if pod {
		return "Pod"
	}
	return unset
}

// progress returns the state of an eviction or a request as tables show it.
func progress(observed *int64, conditions []metav1.Condition) string {
	for _, end := range []lifecyclev1alpha1.EvictionConditionType{lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed} {
		if c := meta.FindStatusCondition(conditions, string(end)); c != nil && c.Status == metav1.ConditionTrue {
			return fmt.Sprintf("%s (%s)", c.Type, c.Reason)
		}
	}
	if ptr.Deref(observed, 0) > 0 {
		return "Progressing"
	}
	return "Pending"
}

// current returns the active responder of an eviction or, if none is, the last one that has
// ended, with its report, and how many have been active. Both may be nil.
func current(e *lifecyclev1alpha1.Eviction) (target *lifecyclev1alpha1.TargetResponder, report *lifecyclev1alpha1.ResponderStatus, activated int) {
	var ended *lifecyclev1alpha1.TargetResponder
	for i := range e.Status.TargetResponders {
		t := &e.Status.TargetResponders[i]
		switch {
		case t.State == lifecyclev1alpha1.ResponderStateActive:
			target = t
			activated++
		case slices.Contains(final, t.State):
			ended = t
			activated++
		}
	}
	if target == nil {
		target = ended
	}
	if target != nil {
		report = find(e.Status.Responders, target.Name, nameOfReport)
	}
	return target, report, activated
}

func activeResponder(e *lifecyclev1alpha1.Eviction) any {
	name := unset
	target, _, activated := current(e)
	if target != nil {
		name = target.Name
	}
	return fmt.Sprintf("%s (%d/%d)", name, activated, len(e.Status.TargetResponders))
}

func responderState(e *lifecyclev1alpha1.Eviction) any {
	return func(now time.Time) string {
		target, report, _ := current(e)
		switch {
		case report == nil:
			return unset
		case target.State == lifecyclev1alpha1.ResponderStateActive && report.StartTime != nil:
			return fmt.Sprintf("Started (%s)", ago(now, report.StartTime))
		case target.State == lifecyclev1alpha1.ResponderStateCompleted && report.CompletionTime != nil:
			return fmt.Sprintf("%s (%s)", target.State, ago(now, report.CompletionTime))
		}
		return string(target.State)
	}
}

func expectedEnd(e *lifecyclev1alpha1.Eviction) any {
	return func(now time.Time) string {
		target, report, _ := current(e)
		switch {
		case report == nil:
			return unknown
		case target.State != lifecyclev1alpha1.ResponderStateActive:
			return "-"
		case report.StartTime == nil || report.ExpectedCompletionTime == nil:
			return unknown
		case report.ExpectedCompletionTime.After(now):
			return "in " + duration.HumanDuration(report.ExpectedCompletionTime.Sub(now))
		}
		return ago(now, report.ExpectedCompletionTime)
	}
}

func ago(now time.Time, at *metav1.Time) string {
	return duration.HumanDuration(now.Sub(at.Time)) + " ago"
}

// requestersCell names the first of those that still want the eviction.
func requestersCell(requesters []lifecyclev1alpha1.Requester) string {
	var names []string
	for _, r := range requesters {
		if r.Intent != lifecyclev1alpha1.RequesterIntentWithdrawn {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	switch {
	case len(requesters) == 0:
		return "<none>"
	case len(names) == 0:
		return "<withdrawn>"
	case len(names) == 1:
		return names[0]
	}
	return fmt.Sprintf("%s + %d more...", names[0], len(names)-1)
}
