package rules

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var jobTemplate = field.NewPath("spec", "template")

// jobs returns an object as a job, and as it was, if it is one.
func jobs(obj, old runtime.Object) (job, was *batchv1.Job, ok bool) {
	job, ok = obj.(*batchv1.Job)
	if !ok {
		return nil, nil, false
	}
	was, ok = old.(*batchv1.Job)
	return job, was, ok
}

// completions of indexed jobs do not change.
func completions(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok || job.Spec.CompletionMode == nil || *job.Spec.CompletionMode != batchv1.IndexedCompletion {
		return nil // those of other jobs never do
	}
	return apivalidation.ValidateImmutableField(job.Spec.Completions, was.Spec.Completions, field.NewPath("spec", "completions"))
}

// scheduling of the pods of a job does not change.
func scheduling(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok || sameScheduling(&job.Spec.Template.Spec, &was.Spec.Template.Spec) {
		return nil
	}
	return apivalidation.ValidateImmutableField(job.Spec.Template, was.Spec.Template, jobTemplate)
}

// schedulingOfStarted does not change, though the job is suspended.
func schedulingOfStarted(obj, old runtime.Object) field.ErrorList {
	if _, was, ok := jobs(obj, old); ok && was.Status.StartTime != nil {
		return scheduling(obj, old)
	}
	return nil
}

func sameScheduling(a, b *corev1.PodSpec) bool {
	return apiequality.Semantic.DeepEqual(a.NodeSelector, b.NodeSelector) && apiequality.Semantic.DeepEqual(a.Affinity, b.Affinity) &&
		apiequality.Semantic.DeepEqual(a.Tolerations, b.Tolerations) && apiequality.Semantic.DeepEqual(a.SchedulingGates, b.SchedulingGates)
}

// resources of the containers of a job do not change.
func resources(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok {
		return nil
	}
	now, before := &job.Spec.Template.Spec, &was.Spec.Template.Spec
	if sameResources(now.Containers, before.Containers) && sameResources(now.InitContainers, before.InitContainers) {
		return nil
	}
	return apivalidation.ValidateImmutableField(job.Spec.Template, was.Spec.Template, jobTemplate)
}

// sameResources reports whether containers differ in other things than resources alone,
// which validation refuses anyway, or not at all.
func sameResources(a, b []corev1.Container) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if !apiequality.Semantic.DeepEqual(a[i].Resources, b[i].Resources) {
			return false
		}
	}
	return true
}
