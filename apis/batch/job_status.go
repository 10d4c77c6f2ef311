package batch

import (
	"fmt"
	"math"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/workload"
)

// statusChange is an update of a job's status. A rule applies only if the fields
// that it is about change: a change of the spec may have made the status invalid,
// and the controller must be able to correct it step by step.
type statusChange struct{ now, old *batchv1.Job }

func (c statusChange) is(condition batchv1.JobConditionType) bool  { return isTrue(c.now, condition) }
func (c statusChange) was(condition batchv1.JobConditionType) bool { return isTrue(c.old, condition) }

// changed reports whether any of the conditions became true or ceased to be.
func (c statusChange) changed(conditions ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(conditions, func(t batchv1.JobConditionType) bool { return c.is(t) != c.was(t) })
}

func (c statusChange) finished() bool { return finished(c.now) }

// finishing reports whether the job became finished or ceased to be.
func (c statusChange) finishing() bool { return finished(c.now) != finished(c.old) }

func finished(j *batchv1.Job) bool {
	return isTrue(j, batchv1.JobComplete) || isTrue(j, batchv1.JobFailed)
}

// statusRule is a rule for the order of changes of a job's status.
type statusRule func(c statusChange, status *field.Path) *field.Error

func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	return append(ValidateStatusWithoutManagedBy(j, old), statusChange{j, old}.breaks(managedStatusRules())...)
}

// ValidateStatusWithoutManagedBy validates a job's status as servers do whose feature gate
// JobManagedBy is off. Job controllers of that age set Complete without SuccessCriteriaMet
// before it, and Failed without FailureTarget.
func ValidateStatusWithoutManagedBy(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := slices.Concat(
		workload.ValidateCounts(path,
			workload.Of("active", j.Status.Active),
			workload.Of("succeeded", j.Status.Succeeded),
			workload.Of("failed", j.Status.Failed),
			workload.OfPtr("ready", j.Status.Ready),
			workload.OfPtr("terminating", j.Status.Terminating)),
		validateUncounted(j.Status.UncountedTerminatedPods, path.Child("uncountedTerminatedPods")))
	return append(errs, statusChange{j, old}.breaks(successStatusRules())...)
}

// breaks returns the errors of rules.
func (c statusChange) breaks(rules []statusRule) field.ErrorList {
	var errs field.ErrorList
	for _, rule := range rules {
		if err := rule(c, field.NewPath("status")); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// validateUncounted requires the UIDs of pods, each once.
func validateUncounted(u *batchv1.UncountedTerminatedPods, path *field.Path) field.ErrorList {
	if u == nil {
		return nil
	}
	var errs field.ErrorList
	seen := sets.New[types.UID]()
	check := func(uids []types.UID, path *field.Path) {
		for i, uid := range uids {
			if uid == "" {
				errs = append(errs, field.Invalid(path.Index(i), uid, "must not be empty"))
			} else if seen.Has(uid) {
				errs = append(errs, field.Duplicate(path.Index(i), uid))
			}
			seen.Insert(uid)
		}
	}
	check(u.Succeeded, path.Child("succeeded"))
	check(u.Failed, path.Child("failed"))
	return errs
}

// successStatusRules returns the rules of the condition SuccessCriteriaMet, which no gate turns off.
func successStatusRules() []statusRule {
	return []statusRule{
		successExcludesFailed, successExcludesFailureTarget, successPolicyPrecedesComplete,
		successCriteriaStay, successCriteriaPrecedeComplete,
	}
}

// managedStatusRules returns the rules that came with spec.managedBy, by which controllers of
// others write the status (KEP-4368).
func managedStatusRules() []statusRule {
	return []statusRule{
		completeExcludesFailed, completeExcludesFailureTarget, failedFollowsFailureTarget, completeFollowsSuccessCriteria,
		finalConditionsStay(batchv1.JobFailed), finalConditionsStay(batchv1.JobComplete), finalConditionsStay(batchv1.JobFailureTarget),
		completionTimeMeansComplete, completeHasCompletionTime, completionTimeFollowsStart, completionTimeIsImmutable, startTimeIsImmutable,
		finishedHasStarted, finishedHasNoActivePods, finishedHasNoTerminatingPods, finishedHasNoUncountedPods,
		readyPodsAreActive, failedNeverDecreases, succeededNeverDecreases,
		completedIndexesAreIndexes, completedIndexesNeedIndexedMode, failedIndexesAreIndexes, failedIndexesNeedBackoffLimit, indexesFailOrComplete,
	}
}

func conditionsInvalid(status *field.Path, msg string) *field.Error {
	return field.Invalid(status.Child("conditions"), field.OmitValueType{}, msg)
}

func completeExcludesFailed(c statusChange, status *field.Path) *field.Error {
	if !c.changed(batchv1.JobComplete, batchv1.JobFailed) || !c.is(batchv1.JobComplete) || !c.is(batchv1.JobFailed) {
		return nil
	}
	return conditionsInvalid(status, "cannot set Complete=True and Failed=true conditions")
}

func completeExcludesFailureTarget(c statusChange, status *field.Path) *field.Error {
	if !c.changed(batchv1.JobComplete, batchv1.JobFailureTarget) || !c.is(batchv1.JobComplete) || !c.is(batchv1.JobFailureTarget) {
		return nil
	}
	return conditionsInvalid(status, "cannot set Complete=True and FailureTarget=true conditions")
}

func failedFollowsFailureTarget(c statusChange, status *field.Path) *field.Error {
	if !c.changed(batchv1.JobFailed) && !c.failedIndexesChanged() || !c.is(batchv1.JobFailed) || c.is(batchv1.JobFailureTarget) {
		return nil
	}
	return conditionsInvalid(status, "cannot set Failed=True condition without the FailureTarget=true condition")
}

func completeFollowsSuccessCriteria(c statusChange, status *field.Path) *field.Error {
	if !c.changed(batchv1.JobComplete, batchv1.JobSuccessCriteriaMet) || !c.is(batchv1.JobComplete) || c.is(batchv1.JobSuccessCriteriaMet) {
		return nil
	}
	return conditionsInvalid(status, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
}

func successExcludesFailed(c statusChange, status *field.Path) *field.Error {
	if !c.is(batchv1.JobSuccessCriteriaMet) || !c.is(batchv1.JobFailed) {
		return nil
	}
	return conditionsInvalid(status, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
}

func successExcludesFailureTarget(c statusChange, status *field.Path) *field.Error {
	if !c.is(batchv1.JobSuccessCriteriaMet) || !c.is(batchv1.JobFailureTarget) {
		return nil
	}
	return conditionsInvalid(status, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
}

func successPolicyPrecedesComplete(c statusChange, status *field.Path) *field.Error {
	if c.now.Spec.SuccessPolicy == nil || !c.is(batchv1.JobComplete) || c.is(batchv1.JobSuccessCriteriaMet) {
		return nil
	}
	return conditionsInvalid(status, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
}

func finalConditionsStay(condition batchv1.JobConditionType) statusRule {
	return func(c statusChange, status *field.Path) *field.Error {
		if !c.was(condition) || c.is(condition) {
			return nil
		}
		return conditionsInvalid(status, fmt.Sprintf("cannot disable the terminal %s=True condition", condition))
	}
}

func successCriteriaStay(c statusChange, status *field.Path) *field.Error {
	if !c.was(batchv1.JobSuccessCriteriaMet) || c.is(batchv1.JobSuccessCriteriaMet) {
		return nil
	}
	return conditionsInvalid(status, "cannot disable the SuccessCriteriaMet=True condition")
}

func successCriteriaPrecedeComplete(c statusChange, status *field.Path) *field.Error {
	if !c.was(batchv1.JobComplete) || c.was(batchv1.JobSuccessCriteriaMet) || !c.is(batchv1.JobSuccessCriteriaMet) {
		return nil
	}
	return conditionsInvalid(status, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

func (c statusChange) completionTimeChanged() bool {
	return !c.now.Status.CompletionTime.Equal(c.old.Status.CompletionTime)
}

func (c statusChange) startTimeChanged() bool {
	return !c.now.Status.StartTime.Equal(c.old.Status.StartTime)
}

func completionTimeMeansComplete(c statusChange, status *field.Path) *field.Error {
	end := c.now.Status.CompletionTime
	if !c.changed(batchv1.JobComplete) && !c.completionTimeChanged() || end == nil || c.is(batchv1.JobComplete) {
		return nil
	}
	return field.Invalid(status.Child("completionTime"), end, "cannot set completionTime when there is no Complete=True condition")
}

func completeHasCompletionTime(c statusChange, status *field.Path) *field.Error {
	if !c.changed(batchv1.JobComplete) && !c.completionTimeChanged() || c.now.Status.CompletionTime != nil || !c.is(batchv1.JobComplete) {
		return nil
	}
	return field.Required(status.Child("completionTime"), "completionTime is required for Complete jobs")
}

func completionTimeFollowsStart(c statusChange, status *field.Path) *field.Error {
	start, end := c.now.Status.StartTime, c.now.Status.CompletionTime
	if !c.startTimeChanged() && !c.completionTimeChanged() || start == nil || end == nil || !end.Before(start) {
		return nil
	}
	return field.Invalid(status.Child("completionTime"), end, "must be equal to or after `startTime`")
}

func completionTimeIsImmutable(c statusChange, status *field.Path) *field.Error {
	if c.now.Status.CompletionTime == nil || c.old.Status.CompletionTime == nil || !c.completionTimeChanged() {
		return nil
	}
	return field.Invalid(status.Child("completionTime"), c.now.Status.CompletionTime, "field is immutable")
}

// startTimeIsImmutable, except for a job that is suspended or resumes.
func startTimeIsImmutable(c statusChange, status *field.Path) *field.Error {
	resumes := c.was(batchv1.JobSuspended) && hasStatus(c.now, batchv1.JobSuspended, corev1.ConditionFalse)
	if c.old.Status.StartTime == nil || !c.startTimeChanged() || resumes || ptr.Deref(c.now.Spec.Suspend, false) {
		return nil
	}
	return field.Invalid(status.Child("startTime"), c.now.Status.StartTime, "field is immutable for unsuspended job once set")
}

// finishedHasStarted, except for a suspended job that asks for no pods.
func finishedHasStarted(c statusChange, status *field.Path) *field.Error {
	nothingToDo := ptr.Deref(c.now.Spec.Suspend, false) && ptr.Deref(c.now.Spec.Completions, 1) == 0
	if !c.finishing() && !c.startTimeChanged() || nothingToDo || !c.finished() || c.now.Status.StartTime != nil {
		return nil
	}
	return field.Required(status.Child("startTime"), "startTime is required for finished job")
}

func finishedHasNoActivePods(c statusChange, status *field.Path) *field.Error {
	active := c.now.Status.Active
	if !c.finishing() && active == c.old.Status.Active || !c.finished() || active <= 0 {
		return nil
	}
	return field.Invalid(status.Child("active"), active, "active>0 is invalid for finished job")
}

func finishedHasNoTerminatingPods(c statusChange, status *field.Path) *field.Error {
	terminating := ptr.Deref(c.now.Status.Terminating, 0)
	if !c.finishing() && ptr.Equal(c.now.Status.Terminating, c.old.Status.Terminating) || !c.finished() || terminating <= 0 {
		return nil
	}
	return field.Invalid(status.Child("terminating"), terminating, "terminating>0 is invalid for finished job")
}

func finishedHasNoUncountedPods(c statusChange, status *field.Path) *field.Error {
	pods := c.now.Status.UncountedTerminatedPods
	if !c.finishing() && apiequality.Semantic.DeepEqual(pods, c.old.Status.UncountedTerminatedPods) {
		return nil
	}
	if !c.finished() || pods == nil || len(pods.Failed)+len(pods.Succeeded) == 0 {
		return nil
	}
	return field.Invalid(status.Child("uncountedTerminatedPods"), pods, "must be empty for finished job")
}

func readyPodsAreActive(c statusChange, status *field.Path) *field.Error {
	now, old := &c.now.Status, &c.old.Status
	if ptr.Equal(now.Ready, old.Ready) && now.Active == old.Active || now.Ready == nil || *now.Ready <= now.Active {
		return nil
	}
	return field.Invalid(status.Child("ready"), ptr.Deref(now.Ready, 0), "cannot set more ready pods than active")
}

func failedNeverDecreases(c statusChange, status *field.Path) *field.Error {
	if c.now.Status.Failed >= c.old.Status.Failed {
		return nil
	}
	return field.Invalid(status.Child("failed"), c.now.Status.Failed, "cannot decrease the failed counter")
}

// succeededNeverDecreases, except for an indexed job that can be scaled.
func succeededNeverDecreases(c statusChange, status *field.Path) *field.Error {
	scales := indexed(&c.now.Spec) && ptr.Equal(c.now.Spec.Completions, c.now.Spec.Parallelism)
	if scales || c.now.Status.Succeeded >= c.old.Status.Succeeded {
		return nil
	}
	return field.Invalid(status.Child("succeeded"), c.now.Status.Succeeded, "cannot decrease the succeeded counter")
}

func (c statusChange) completedIndexesChanged() bool {
	return c.now.Status.CompletedIndexes != c.old.Status.CompletedIndexes
}

func (c statusChange) failedIndexesChanged() bool {
	return !ptr.Equal(c.now.Status.FailedIndexes, c.old.Status.FailedIndexes)
}

func completedIndexesAreIndexes(c statusChange, status *field.Path) *field.Error {
	if !c.completedIndexesChanged() || c.now.Spec.Completions == nil {
		return nil
	}
	if _, err := parseIndexes(c.now.Status.CompletedIndexes, *c.now.Spec.Completions); err != nil {
		return field.Invalid(status.Child("completedIndexes"), c.now.Status.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
	}
	return nil
}

func completedIndexesNeedIndexedMode(c statusChange, status *field.Path) *field.Error {
	if !c.completedIndexesChanged() || c.now.Status.CompletedIndexes == "" || indexed(&c.now.Spec) {
		return nil
	}
	return field.Invalid(status.Child("completedIndexes"), c.now.Status.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
}

func failedIndexesAreIndexes(c statusChange, status *field.Path) *field.Error {
	list := c.now.Status.FailedIndexes
	if !c.failedIndexesChanged() || list == nil || c.now.Spec.Completions == nil || c.now.Spec.BackoffLimitPerIndex == nil {
		return nil
	}
	if _, err := parseIndexes(*list, *c.now.Spec.Completions); err != nil {
		return field.Invalid(status.Child("failedIndexes"), *list, "error parsing failedIndexes: "+err.Error())
	}
	return nil
}

func failedIndexesNeedBackoffLimit(c statusChange, status *field.Path) *field.Error {
	list := c.now.Status.FailedIndexes
	if !c.failedIndexesChanged() || list == nil || c.now.Spec.BackoffLimitPerIndex != nil {
		return nil
	}
	return field.Invalid(status.Child("failedIndexes"), *list, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
}

func indexesFailOrComplete(c statusChange, status *field.Path) *field.Error {
	if !c.failedIndexesChanged() && !c.completedIndexesChanged() || c.now.Status.FailedIndexes == nil {
		return nil
	}
	// Scaling may have left indexes beyond completions, and lists that cannot
	// be read are reported by the rules above.
	failed, err := parseIndexes(*c.now.Status.FailedIndexes, math.MaxInt32)
	if err != nil {
		return nil
	}
	completed, err := parseIndexes(c.now.Status.CompletedIndexes, math.MaxInt32)
	if err != nil {
		return nil
	}
	if index, found := overlap(completed, failed); found {
		return field.Invalid(status.Child("failedIndexes"), *c.now.Status.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", index))
	}
	return nil
}
