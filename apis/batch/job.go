package batch

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var jobs = resource.Type[*batchv1.Job]{
	Name: "jobs", Categories: []string{"all"}, Namespaced: true,
	Default:        defaultJob,
	PrepareCreate:  selectOwnPods,
	Validate:       validateJob,
	ValidateCreate: validateGeneratedSelector,
	ValidateUpdate: validateJobUpdate,
	Restrict: func(env *resource.Env, j *batchv1.Job) field.ErrorList {
		return podspec.Restrict(env, &j.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
	},
	Warn: func(j, old *batchv1.Job) []string {
		if old == nil {
			return append(workload.NameWarnings(j.Name), warnJobSpec(&j.Spec, field.NewPath("spec"))...)
		}
		if j.Generation == old.Generation {
			return nil
		}
		return warnJobSpec(&j.Spec, field.NewPath("spec"))
	},
	Generation:      true,
	Status:          true,
	ValidateStatus:  validateJobStatus,
	OrphanByDefault: true,
	Columns: slices.Concat([]resource.Column[*batchv1.Job]{
		resource.Name[*batchv1.Job](),
		{Name: "Status", Description: "Status of the job.", Since: 30, Value: func(j *batchv1.Job) any { return jobPhase(j) }},
		{Name: "Completions", Description: batchv1.JobStatus{}.SwaggerDoc()["succeeded"], Value: func(j *batchv1.Job) any { return completions(j) }},
		{Name: "Duration", Description: "Time required to complete the job.", Value: jobDuration},
		resource.Age[*batchv1.Job](),
	}, resource.Wide(append(
		workload.ContainerColumns(func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template }),
		workload.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"], func(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector }),
	)...)),
	Fields: map[string]func(*batchv1.Job) string{
		"status.successful": func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) },
	},
}

func defaultJob(j *batchv1.Job) {
	spec := &j.Spec
	defaultJobTemplate(spec)
	// A job without completions and parallelism has one pod. One with parallelism
	// only is a work queue, which is complete when any pod has succeeded.
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = ptr.To[int32](1)
	}
	resource.Fill(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		resource.Fill(&spec.BackoffLimit, math.MaxInt32)
	}
	resource.Fill(&spec.BackoffLimit, 6)
	resource.Fill(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	resource.Fill(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil {
		resource.Fill(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	resource.Fill(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	resource.Fill(&spec.ManualSelector, false)
	if len(j.Labels) == 0 && len(spec.Template.Labels) > 0 {
		// The same map, so that labels that selectOwnPods adds are the job's, too.
		j.Labels = spec.Template.Labels
	}
}

// defaultJobTemplate sets the defaults that the template of a cron job has, too.
func defaultJobTemplate(spec *batchv1.JobSpec) {
	podspec.DefaultTemplate(&spec.Template)
	if spec.PodFailurePolicy == nil {
		return
	}
	for _, rule := range spec.PodFailurePolicy.Rules {
		for i := range rule.OnPodConditions {
			resource.FillEmpty(&rule.OnPodConditions[i].Status, corev1.ConditionTrue)
		}
	}
}

// The older labels of a job's pods, without a prefix. Clients select by both.
const (
	legacyJobNameLabel       = "job-name"
	legacyControllerUIDLabel = "controller-uid"
)

// ownLabels returns the labels that only the job's pods have.
func ownLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		legacyJobNameLabel:         j.Name,
		batchv1.JobNameLabel:       j.Name,
		legacyControllerUIDLabel:   string(j.UID),
		batchv1.ControllerUidLabel: string(j.UID),
	}
}

// selectOwnPods generates the job's selector and the labels of its template, unless
// manualSelector is set. A selector or labels of the client stay, for validation.
func selectOwnPods(_ context.Context, _ *resource.Env, j *batchv1.Job) {
	if ptr.Deref(j.Spec.ManualSelector, false) {
		return
	}
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = map[string]string{}
	}
	for name, value := range ownLabels(j) {
		if _, given := j.Spec.Template.Labels[name]; !given {
			j.Spec.Template.Labels[name] = value
		}
	}
	resource.Fill(&j.Spec.Selector, metav1.LabelSelector{})
	selected := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
	maps.Copy(selected, j.Spec.Selector.MatchLabels)
	j.Spec.Selector.MatchLabels = selected
}

// warnJobSpec warns of what the server accepts but controllers and nodes may
// not do as expected.
func warnJobSpec(spec *batchv1.JobSpec, path *field.Path) []string {
	var warnings []string
	if indexed(spec) && ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > maxParallelismOfMany {
		warnings = append(warnings, path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, podspec.WarnTemplate(&spec.Template, path.Child("template"))...)
}

// jobPhase returns the Status cell: the first status that applies.
func jobPhase(j *batchv1.Job) string {
	switch {
	case isTrue(j, batchv1.JobComplete):
		return "Complete"
	case isTrue(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case isTrue(j, batchv1.JobSuspended):
		return "Suspended"
	case isTrue(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case isTrue(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(j *batchv1.Job) string {
	switch parallelism := ptr.Deref(j.Spec.Parallelism, 0); {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job) any {
	switch start, end := j.Status.StartTime, j.Status.CompletionTime; {
	case start == nil:
		return ""
	case end == nil:
		return *start
	default:
		return duration.HumanDuration(end.Sub(start.Time))
	}
}

func isTrue(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	return hasStatus(j, condition, corev1.ConditionTrue)
}

func hasStatus(j *batchv1.Job, condition batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == condition && c.Status == status })
}

func indexed(spec *batchv1.JobSpec) bool {
	return ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
}
