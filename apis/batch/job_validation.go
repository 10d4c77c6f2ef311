package batch

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

// Bounds of indexed jobs, which keep the lists of indexes in the status small.
const (
	maxParallelism   = 100_000
	maxFailedIndexes = 100_000
	// With a backoff limit per index, the next two bounds apply to jobs of more
	// than manyCompletions.
	manyCompletions        = 100_000
	maxParallelismOfMany   = 10_000
	maxFailedIndexesOfMany = 10_000
)

// maxManagedBy is the greatest length of spec.managedBy.
const maxManagedBy = 63

func validateJob(j *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateJobSpec(&j.Spec, path)
	if j.Spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	errs = slices.Concat(errs,
		metav1validation.ValidateLabelSelector(j.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector")),
		workload.ValidateSelected(&j.Spec.Template, j.Spec.Selector, path.Child("template")))
	if n := ptr.Deref(j.Spec.Completions, 0); indexed(&j.Spec) && n > 0 {
		// The pods' host names end in their indexes.
		if last := fmt.Sprintf("%s-%d", j.Name, n-1); len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+last))
		}
	}
	return errs
}

// validateGeneratedSelector requires the selector and labels that selectOwnPods
// generates: it does not replace those of the client. An update may leave out manualSelector.
func validateGeneratedSelector(j *batchv1.Job) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	own, path := ownLabels(j), field.NewPath("spec", "template", "metadata", "labels")
	for _, key := range slices.Sorted(maps.Keys(own)) {
		value, found := j.Spec.Template.Labels[key]
		switch msg := fmt.Sprintf("must be '%s'", own[key]); {
		case !found:
			errs = append(errs, field.Required(path.Key(key), msg))
		case value != own[key]:
			errs = append(errs, field.Invalid(path.Key(key), j.Spec.Template.Labels, msg))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(labels.Set(own)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSpec validates what a job and the template of a cron job have in
// common.
func validateJobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := workload.ValidateCounts(path,
		workload.OfPtr("parallelism", spec.Parallelism),
		workload.OfPtr("completions", spec.Completions),
		workload.OfPtr("activeDeadlineSeconds", spec.ActiveDeadlineSeconds),
		workload.OfPtr("backoffLimit", spec.BackoffLimit),
		workload.OfPtr("ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished),
		workload.OfPtr("backoffLimitPerIndex", spec.BackoffLimitPerIndex),
		workload.OfPtr("maxFailedIndexes", spec.MaxFailedIndexes))
	if spec.ManagedBy != nil {
		at := path.Child("managedBy")
		errs = slices.Concat(errs, validation.IsDomainPrefixedPath(at, *spec.ManagedBy))
		if len(*spec.ManagedBy) > maxManagedBy {
			errs = append(errs, field.TooLong(at, "", maxManagedBy))
		}
	}
	if spec.CompletionMode != nil {
		errs = slices.Concat(errs, resource.OneOf(path.Child("completionMode"), *spec.CompletionMode, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion))
	}
	return slices.Concat(errs,
		validateIndexing(spec, path),
		validatePodFailurePolicy(spec, path.Child("podFailurePolicy")),
		validateSuccessPolicy(spec, path.Child("successPolicy")),
		validatePodReplacementPolicy(spec, path.Child("podReplacementPolicy")),
		validateScheduling(spec, path.Child("scheduling")),
		podspec.ValidateTemplate(&spec.Template, path.Child("template")),
		validateRestartPolicy(spec, path.Child("template", "spec", "restartPolicy")))
}

// validateIndexing validates what depends on the completion mode.
func validateIndexing(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	reject := func(name string, value int32, format string, args ...any) {
		errs = append(errs, field.Invalid(path.Child(name), value, fmt.Sprintf(format, args...)))
	}
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if !indexed(spec) {
		if ptr.Deref(spec.CompletionMode, batchv1.NonIndexedCompletion) != batchv1.NonIndexedCompletion {
			return errs
		}
		if spec.BackoffLimitPerIndex != nil {
			reject("backoffLimitPerIndex", *spec.BackoffLimitPerIndex, "requires indexed completion mode")
		}
		if spec.MaxFailedIndexes != nil {
			reject("maxFailedIndexes", *spec.MaxFailedIndexes, "requires indexed completion mode")
		}
		return errs
	}
	parallelism, failed := ptr.Deref(spec.Parallelism, 0), ptr.Deref(spec.MaxFailedIndexes, 0)
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if parallelism > maxParallelism {
		reject("parallelism", parallelism, "must be less than or equal to %d when completion mode is Indexed", maxParallelism)
	}
	if spec.Completions != nil && spec.MaxFailedIndexes != nil && failed > *spec.Completions {
		reject("maxFailedIndexes", failed, "must be less than or equal to completions")
	}
	if failed > maxFailedIndexes {
		reject("maxFailedIndexes", failed, "must be less than or equal to %d", maxFailedIndexes)
	}
	if spec.BackoffLimitPerIndex == nil || ptr.Deref(spec.Completions, 0) <= manyCompletions {
		return errs
	}
	const ofMany = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	if spec.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	if parallelism > maxParallelismOfMany {
		reject("parallelism", parallelism, ofMany, maxParallelismOfMany, manyCompletions)
	}
	if failed > maxFailedIndexesOfMany {
		reject("maxFailedIndexes", failed, ofMany, maxFailedIndexesOfMany, manyCompletions)
	}
	return errs
}

func validatePodReplacementPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch {
	case spec.PodReplacementPolicy == nil:
		return nil
	case spec.PodFailurePolicy != nil:
		return resource.OneOf(path, *spec.PodReplacementPolicy, batchv1.Failed)
	default:
		return resource.OneOf(path, *spec.PodReplacementPolicy, batchv1.Failed, batchv1.TerminatingOrFailed)
	}
}

// validateRestartPolicy requires OnFailure or Never: a job does not support the
// default, Always.
func validateRestartPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case corev1.RestartPolicyAlways, "":
		return field.ErrorList{field.Required(path, `valid values: "OnFailure", "Never"`)}
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			return field.ErrorList{field.Invalid(path, policy, `only "Never" is supported when podFailurePolicy is specified`)}
		}
		return nil
	default:
		return resource.OneOf(path, policy, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
}

func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	spec, was, path := &j.Spec, &old.Spec, field.NewPath("spec")
	errs := slices.Concat(
		validateCompletionsUpdate(spec, was, path.Child("completions")),
		apivalidation.ValidateImmutableField(spec.Selector, was.Selector, path.Child("selector")),
		validateJobTemplateUpdate(j, old, path.Child("template")))
	for _, f := range []struct {
		name     string
		now, was any
	}{
		{"completionMode", spec.CompletionMode, was.CompletionMode},
		{"podFailurePolicy", spec.PodFailurePolicy, was.PodFailurePolicy},
		{"backoffLimitPerIndex", spec.BackoffLimitPerIndex, was.BackoffLimitPerIndex},
		{"managedBy", spec.ManagedBy, was.ManagedBy},
		{"successPolicy", spec.SuccessPolicy, was.SuccessPolicy},
	} {
		errs = slices.Concat(errs, apivalidation.ValidateImmutableField(f.now, f.was, path.Child(f.name)))
	}
	return slices.Concat(errs, validateSchedulingUpdate(spec.Scheduling, was.Scheduling, path.Child("scheduling")))
}

// validateCompletionsUpdate allows an indexed job to be scaled if completions and
// parallelism are equal, before and after.
func validateCompletionsUpdate(spec, was *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !indexed(spec) {
		return apivalidation.ValidateImmutableField(spec.Completions, was.Completions, path)
	}
	if spec.Completions == nil || ptr.Equal(spec.Completions, was.Completions) || ptr.Equal(spec.Completions, spec.Parallelism) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *spec.Completions, "can only be modified in tandem with spec.parallelism")}
}

// validateJobTemplateUpdate forbids changes of the template, except for the
// scheduling directives and resources of a suspended job without pods, which
// queueing controllers set (KEP-2926).
func validateJobTemplateUpdate(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	now, was := &j.Spec.Template, &old.Spec.Template
	neverStarted := old.Status.StartTime == nil || isTrue(old, batchv1.JobSuspended)
	if !ptr.Deref(old.Spec.Suspend, false) || !neverStarted || old.Status.Active > 0 {
		return apivalidation.ValidateImmutableField(now, was, path)
	}
	allowed := was.Spec.DeepCopy()
	allowed.NodeSelector, allowed.Tolerations, allowed.SchedulingGates = now.Spec.NodeSelector, now.Spec.Tolerations, now.Spec.SchedulingGates
	allowNodeAffinity(allowed, now.Spec.Affinity)
	allowResources(allowed.Containers, now.Spec.Containers)
	allowResources(allowed.InitContainers, now.Spec.InitContainers)
	return apivalidation.ValidateImmutableField(&now.Spec, allowed, path.Child("spec"))
}

// allowNodeAffinity copies the node affinity, and no other affinity.
func allowNodeAffinity(allowed *corev1.PodSpec, affinity *corev1.Affinity) {
	switch {
	case affinity != nil:
		resource.Fill(&allowed.Affinity, corev1.Affinity{})
		allowed.Affinity.NodeAffinity = affinity.NodeAffinity
	case allowed.Affinity != nil:
		allowed.Affinity.NodeAffinity = nil
		if apiequality.Semantic.DeepEqual(allowed.Affinity, &corev1.Affinity{}) {
			allowed.Affinity = nil
		}
	}
}

// allowResources copies the resources of containers that keep their name and
// position.
func allowResources(allowed, containers []corev1.Container) {
	if len(allowed) != len(containers) {
		return
	}
	for i := range allowed {
		if allowed[i].Name == containers[i].Name {
			allowed[i].Resources = containers[i].Resources
		}
	}
}
