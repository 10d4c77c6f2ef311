package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// The bounds of what responders report (kubernetes/pkg/apis/lifecycle/validation).
const (
	heartbeatDeadline = 20 * time.Minute
	timeSkew          = 30 * time.Second
	maxExpected       = 10 * 365 * 24 * time.Hour
	maxMessage        = 4000
)

// imperativePriority is the priority of the responder that evicts a pod by pods/eviction.
const imperativePriority = 100

// final are the states that a responder keeps.
var final = []lifecyclev1alpha1.ResponderStateType{
	lifecyclev1alpha1.ResponderStateCanceled, lifecyclev1alpha1.ResponderStateCompleted, lifecyclev1alpha1.ResponderStateInterrupted,
}

// responders are the responders of a status that is validated: their states, which the
// controller sets, and what they report.
type responders struct {
	status, old *lifecyclev1alpha1.EvictionStatus
	ended       bool // the target is evicted, or the eviction has failed
	now         time.Time
	// targets and oldTargets are the responders in the order in which they become active.
	targets, oldTargets []*lifecyclev1alpha1.TargetResponder
	// active is the index of the responder that was active, or -1.
	active int
}

func newResponders(status, old *lifecyclev1alpha1.EvictionStatus, ended bool, now time.Time) *responders {
	r := &responders{status: status, old: old, ended: ended, now: now, targets: inOrder(status.TargetResponders), oldTargets: inOrder(old.TargetResponders)}
	r.active = slices.IndexFunc(r.oldTargets, func(t *lifecyclev1alpha1.TargetResponder) bool {
		return t.State == lifecyclev1alpha1.ResponderStateActive
	})
	return r
}

// inOrder returns responders in the order in which they become active: by priority, the
// highest first, and then by their domains, from the last label to the first.
func inOrder(list []lifecyclev1alpha1.TargetResponder) []*lifecyclev1alpha1.TargetResponder {
	var sorted []*lifecyclev1alpha1.TargetResponder
	for i := range list {
		sorted = append(sorted, &list[i])
	}
	slices.SortFunc(sorted, func(a, b *lifecyclev1alpha1.TargetResponder) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Priority, -1), ptr.Deref(a.Priority, -1)), compareNames(a.Name, b.Name))
	})
	return sorted
}

func compareNames(a, b string) int {
	parts := func(name string) (labels []string, key string) {
		domain, key, _ := strings.Cut(name, "/")
		labels = strings.Split(domain, ".")
		slices.Reverse(labels)
		return labels, key
	}
	aLabels, aKey := parts(a)
	bLabels, bKey := parts(b)
	return cmp.Or(slices.Compare(aLabels, bLabels), strings.Compare(aKey, bKey))
}

func nameOfTarget(t *lifecyclev1alpha1.TargetResponder) string { return t.Name }

func nameOfReport(r *lifecyclev1alpha1.ResponderStatus) string { return r.Name }

// names returns the names of the elements of a list.
func names[T any](list []T, name func(*T) string) sets.Set[string] {
	all := sets.New[string]()
	for i := range list {
		all.Insert(name(&list[i]))
	}
	return all
}

// find returns the element with a name, or nil.
func find[T any](list []T, name string, of func(*T) string) *T {
	for i := range list {
		if of(&list[i]) == name {
			return &list[i]
		}
	}
	return nil
}

// validateTargets keeps the responders once they are listed, and lets their states change
// from the first to the last.
func (r *responders) validateTargets(path *field.Path) field.ErrorList {
	list, old := r.status.TargetResponders, r.old.TargetResponders
	if len(old) > 0 && (len(list) != len(old) || !names(list, nameOfTarget).Equal(names(old, nameOfTarget))) {
		return field.ErrorList{field.Invalid(path, list, "must preserve the same length and the same keys")}
	}
	if errs := unique(path, list, maxResponders, nameOfTarget); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i, t := range r.targets {
		errs = append(errs, r.validateTarget(path.Index(slices.IndexFunc(list, func(other lifecyclev1alpha1.TargetResponder) bool { return other.Name == t.Name })), i)...)
	}
	return errs
}

// expected returns the states that responder i of targets may have, and why.
func (r *responders) expected(i int) (states []lifecyclev1alpha1.ResponderStateType, reason string) {
	const finished = "the eviction request has finished processing"
	only := func(state lifecyclev1alpha1.ResponderStateType) []lifecyclev1alpha1.ResponderStateType {
		return []lifecyclev1alpha1.ResponderStateType{state}
	}
	handedOver := r.active >= 0 && r.targets[r.active].State != lifecyclev1alpha1.ResponderStateActive
	last := len(r.oldTargets) - 1
	processed := last >= 0 && r.active < 0 && (r.ended || slices.Contains(final, r.oldTargets[last].State))
	switch {
	case i < r.active, processed:
		return only(r.oldTargets[i].State), "final state is immutable"
	case i == r.active && handedOver:
		return final, "this responder must reach a final state"
	case i == r.active && r.ended:
		return final, finished
	case i == r.active:
		return only(lifecyclev1alpha1.ResponderStateActive), "the eviction request stays active"
	case i == 0 && last < 0, i == r.active+1 && handedOver:
		if r.ended {
			return only(lifecyclev1alpha1.ResponderStateInactive), finished
		}
		return only(lifecyclev1alpha1.ResponderStateActive), "this responder is next in line"
	}
	return only(lifecyclev1alpha1.ResponderStateInactive), "the previously active has not finished processing"
}

// validateTarget validates responder i of targets.
func (r *responders) validateTarget(path *field.Path, i int) field.ErrorList {
	t := r.targets[i]
	errs := podspec.EvictionParticipantIsValid(path.Child("name"), t.Name)
	errs = append(errs, r.validatePriority(path.Child("priority"), t)...)
	report := find(r.status.Responders, t.Name, nameOfReport)
	if report == nil {
		return append(errs, field.Invalid(path, t.Name, fmt.Sprintf("%q has to be tracked in status.responders first", t.Name)))
	}
	state := path.Child("state")
	if unknown := resource.RequiredOneOf(state, t.State, lifecyclev1alpha1.ResponderStateActive, lifecyclev1alpha1.ResponderStateCanceled,
		lifecyclev1alpha1.ResponderStateCompleted, lifecyclev1alpha1.ResponderStateInactive, lifecyclev1alpha1.ResponderStateInterrupted); len(unknown) > 0 {
		return append(errs, unknown...)
	}
	if states, reason := r.expected(i); !slices.Contains(states, t.State) {
		var all []string
		for _, s := range states {
			all = append(all, string(s))
		}
		return append(errs, field.Invalid(state, t.State, fmt.Sprintf("must be one of: %s, because %s", strings.Join(all, ", "), reason)))
	}
	if t.State != lifecyclev1alpha1.ResponderStateActive && r.mustReport(report) {
		errs = append(errs, field.Forbidden(state, "must stay Active because the responder is in progress and it should report status.responders.heartbeatTime or status.responders.completionTime"))
	}
	if t.State == lifecyclev1alpha1.ResponderStateCompleted && report.CompletionTime == nil {
		errs = append(errs, field.Invalid(state, t.State, "cannot become Completed because the responder didn't report status.responders.completionTime"))
	}
	return errs
}

// mustReport reports whether a responder has started, has not completed, and may still report
// in time.
func (r *responders) mustReport(report *lifecyclev1alpha1.ResponderStatus) bool {
	if r.ended || report.StartTime == nil || report.CompletionTime != nil {
		return false
	}
	last := report.StartTime
	if report.HeartbeatTime != nil {
		last = report.HeartbeatTime
	}
	return r.now.Before(last.Add(heartbeatDeadline - timeSkew))
}

// validatePriority keeps the priority that a responder had. Kubernetes' own responder has one
// that others may not have.
func (r *responders) validatePriority(path *field.Path, t *lifecyclev1alpha1.TargetResponder) field.ErrorList {
	if t.Priority == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if old := find(r.old.TargetResponders, t.Name, nameOfTarget); old != nil && old.Priority != nil && *old.Priority != *t.Priority {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "field cannot be modified once set")}
	}
	if t.Name != lifecyclev1alpha1.EvictionResponderImperativeEviction {
		return podspec.ResponderPriorityIsValid(path, *t.Priority)
	}
	if *t.Priority != imperativePriority {
		return field.ErrorList{field.Invalid(path, *t.Priority, fmt.Sprintf("core k8s responder is expected to have priority: %d", imperativePriority))}
	}
	return nil
}

// validateReports requires a report of each responder, of which only that of the active one
// changes.
func (r *responders) validateReports(path *field.Path) field.ErrorList {
	targets, reports := r.status.TargetResponders, r.status.Responders
	if len(targets) != len(reports) || !names(targets, nameOfTarget).Equal(names(reports, nameOfReport)) {
		return field.ErrorList{field.Invalid(path, reports, "must be the same length as status.targetResponders and contain the same keys")}
	}
	if errs := unique(path, reports, maxResponders, nameOfReport); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i := range reports {
		errs = append(errs, r.validateReport(path.Index(i), &reports[i])...)
	}
	return errs
}

func (r *responders) validateReport(path *field.Path, report *lifecyclev1alpha1.ResponderStatus) field.ErrorList {
	active := find(r.status.TargetResponders, report.Name, nameOfTarget).State == lifecyclev1alpha1.ResponderStateActive
	old := find(r.old.Responders, report.Name, nameOfReport)
	switch {
	case old == nil:
		old = &lifecyclev1alpha1.ResponderStatus{}
	case !active && !apiequality.Semantic.DeepEqual(report, old):
		return field.ErrorList{field.Invalid(path, report, "field is immutable")}
	}
	errs := podspec.EvictionParticipantIsValid(path.Child("name"), report.Name)
	t := reportTimes{path: path, start: report.StartTime, now: r.now}
	if report.StartTime == nil && old.StartTime == nil && active {
		errs = append(errs, field.Required(path.Child("startTime"), "is required for an active responder"))
	}
	errs = append(errs, t.once("startTime", report.StartTime, old.StartTime)...)
	errs = append(errs, t.once("completionTime", report.CompletionTime, old.CompletionTime)...)
	errs = append(errs, t.heartbeat(report.HeartbeatTime, old.HeartbeatTime)...)
	errs = append(errs, t.expected(report.ExpectedCompletionTime, old.ExpectedCompletionTime)...)
	if m := report.Message; m != nil && utf8.RuneCountInString(*m) > maxMessage {
		errs = append(errs, field.TooLongCharacters(path.Child("message"), "", maxMessage))
	}
	return errs
}

// reportTimes validates the times of a report.
type reportTimes struct {
	path  *field.Path
	start *metav1.Time
	now   time.Time
}

// once validates a time that is set once, to the present.
func (t *reportTimes) once(name string, value, old *metav1.Time) field.ErrorList {
	path := t.path.Child(name)
	switch {
	case value.Equal(old):
		return nil
	case value == nil:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "field cannot be cleared once set")}
	case old != nil:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "field cannot be modified once set")}
	}
	if errs := t.afterStart(path, value); len(errs) > 0 {
		return errs
	}
	return t.present(path, value)
}

// heartbeat validates a time that grows with the present.
func (t *reportTimes) heartbeat(value, old *metav1.Time) field.ErrorList {
	path := t.path.Child("heartbeatTime")
	switch {
	case value.Equal(old):
		return nil
	case value == nil:
		return field.ErrorList{field.Required(path, "is required once set")}
	case old != nil && value.Before(old):
		return field.ErrorList{field.Invalid(path, value, "cannot be decreased")}
	}
	if errs := t.afterStart(path, value); len(errs) > 0 {
		return errs
	}
	return t.present(path, value)
}

// expected validates a time that lies ahead.
func (t *reportTimes) expected(value, old *metav1.Time) field.ErrorList {
	path := t.path.Child("expectedCompletionTime")
	if value == nil || value.Equal(old) {
		return nil
	}
	errs := t.afterStart(path, value)
	switch {
	case len(errs) > 0:
		return errs
	case value.Time.Before(t.now.Add(-timeSkew)):
		return field.ErrorList{field.Invalid(path, value, "cannot be set to the past time")}
	case value.After(t.now.Add(maxExpected)):
		return field.ErrorList{field.Invalid(path, value, "must complete within 10 years")}
	}
	return nil
}

func (t *reportTimes) afterStart(path *field.Path, value *metav1.Time) field.ErrorList {
	start := t.path.Child("startTime")
	switch {
	case t.start == nil:
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("cannot be set before %s is set", start))}
	case value.Before(t.start):
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must occur after %s", start))}
	}
	return nil
}

func (t *reportTimes) present(path *field.Path, value *metav1.Time) field.ErrorList {
	if value.After(t.now.Add(-timeSkew)) && value.Time.Before(t.now.Add(timeSkew)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "must be set to the present time")}
}
