package rules

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/batch"
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

// statusOfJob validates the status of a job, whose fields and conditions may change in any order.
func statusOfJob(obj, old runtime.Object) field.ErrorList {
	job, was, _ := jobs(obj, old)
	return batch.ValidateStatusWithoutManagedBy(job, was)
}

// scheduling, labels and annotations of the pods of a job do not change.
func scheduling(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok || sameScheduling(&job.Spec.Template.Spec, &was.Spec.Template.Spec) && sameLabels(&job.Spec.Template, &was.Spec.Template) {
		return nil
	}
	return apivalidation.ValidateImmutableField(job.Spec.Template, was.Spec.Template, jobTemplate)
}

// schedulingOfStarted does not change, though the job is suspended.
func schedulingOfStarted(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok || was.Status.StartTime == nil || sameScheduling(&job.Spec.Template.Spec, &was.Spec.Template.Spec) {
		return nil
	}
	return apivalidation.ValidateImmutableField(job.Spec.Template, was.Spec.Template, jobTemplate)
}

// labelsOfStarted and annotations do not change, though the job is suspended.
func labelsOfStarted(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok || was.Status.StartTime == nil || sameLabels(&job.Spec.Template, &was.Spec.Template) {
		return nil
	}
	return apivalidation.ValidateImmutableField(job.Spec.Template, was.Spec.Template, jobTemplate)
}

// sameLabels reports whether templates have the same labels and annotations.
func sameLabels(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(a.Labels, b.Labels) && apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations)
}

func sameScheduling(a, b *corev1.PodSpec) bool {
	return apiequality.Semantic.DeepEqual(a.NodeSelector, b.NodeSelector) && apiequality.Semantic.DeepEqual(a.Affinity, b.Affinity) &&
		apiequality.Semantic.DeepEqual(a.Tolerations, b.Tolerations) && apiequality.Semantic.DeepEqual(a.SchedulingGates, b.SchedulingGates)
}

// resources of the containers of a job do not change, nor does the metadata of its pods, except
// for labels and annotations.
func resources(obj, old runtime.Object) field.ErrorList {
	job, was, ok := jobs(obj, old)
	if !ok {
		return nil
	}
	now, before := &job.Spec.Template.Spec, &was.Spec.Template.Spec
	metadata := was.Spec.Template.ObjectMeta
	metadata.Labels, metadata.Annotations = job.Spec.Template.Labels, job.Spec.Template.Annotations
	if sameResources(now.Containers, before.Containers) && sameResources(now.InitContainers, before.InitContainers) &&
		apiequality.Semantic.DeepEqual(job.Spec.Template.ObjectMeta, metadata) {
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
