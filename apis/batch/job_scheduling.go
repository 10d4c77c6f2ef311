package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"
	"k8s.io/utils/ptr"
)

// SchedulingItem returns how the pods of a job are to be scheduled, from which a Workload with one
// template of this name can be built: with the policy basic by default, and in a gang as many at
// the same time as run in parallel (KEP-5547). Errors have the path of spec.scheduling.
func SchedulingItem(name string, spec *batchv1.JobSpec, path *field.Path) *workloadbuilder.WorkloadItem {
	s := ptr.Deref(spec.Scheduling, batchv1.JobSchedulingConfiguration{})
	return &workloadbuilder.WorkloadItem{
		Name: name,
		Path: path,
		DefaultConfig: &workloadbuilder.SchedulingConfig{
			Policy:            &workloadbuilder.SchedulingPolicy{Basic: &workloadbuilder.BasicSchedulingPolicy{}},
			PriorityClassName: spec.Template.Spec.PriorityClassName,
		},
		Input: workloadbuilder.WorkloadInput{
			Policy:         workloadbuilder.PolicyInput{PodGroupData: s.SchedulingPolicy, PathElements: []string{"schedulingPolicy"}},
			Constraints:    workloadbuilder.ConstraintsInput{PodGroupData: s.SchedulingConstraints, PathElements: []string{"schedulingConstraints"}},
			DisruptionMode: workloadbuilder.DisruptionModeInput{PodGroupData: s.DisruptionMode, PathElements: []string{"disruptionMode"}},
			ResourceClaims: workloadbuilder.ResourceClaimsInput{PodGroupData: s.ResourceClaims, PathElements: []string{"resourceClaims"}},
		},
		Callbacks: []workloadbuilder.SchedulingConfigFunc{func(c *workloadbuilder.SchedulingConfig) {
			if c != nil && c.Policy != nil && c.Policy.Gang != nil && c.Policy.Gang.MinCount == nil {
				c.Policy.Gang.MinCount = ptr.To(max(1, parallelism(spec)))
			}
		}},
	}
}

// parallelism returns how many pods of a job run at the same time.
func parallelism(spec *batchv1.JobSpec) int32 { return ptr.Deref(spec.Parallelism, 1) }

// validateScheduling validates how the pods of a job are to be scheduled, also those of the
// template of a cron job.
func validateScheduling(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	s := spec.Scheduling
	if s == nil {
		return nil
	}
	errs := workloadbuilder.NewBuilder(SchedulingItem("job", spec, path), workloadbuilder.BuildOptions{
		AllowedPolicies:        []workloadbuilder.SchedulingPolicyOption{workloadbuilder.BasicPolicy, workloadbuilder.GangPolicy},
		AllowedDisruptionModes: []workloadbuilder.DisruptionModeOption{workloadbuilder.SingleMode, workloadbuilder.AllMode},
	}).Validate(context.Background(), workloadbuilder.ValidationInput{})
	if n := minCount(s); n != nil && *n > parallelism(spec) {
		errs = append(errs, field.Invalid(path.Child("schedulingPolicy", "gang", "minCount"), *n, fmt.Sprintf("must not be greater than parallelism (%d)", parallelism(spec))))
	}
	claims := path.Child("resourceClaims")
	if n := len(s.ResourceClaims); n > schedulingv1beta1.MaxPodGroupResourceClaims {
		errs = append(errs, field.TooMany(claims, n, schedulingv1beta1.MaxPodGroupResourceClaims))
	}
	names := map[string]bool{}
	for i, claim := range s.ResourceClaims {
		if names[claim.Name] {
			errs = append(errs, field.Duplicate(claims.Index(i), claim.Name))
		}
		names[claim.Name] = true
	}
	return errs
}

// minCount returns how many pods of a gang are set to be scheduled at the same time.
func minCount(s *batchv1.JobSchedulingConfiguration) *int32 {
	if s.SchedulingPolicy == nil || s.SchedulingPolicy.Gang == nil {
		return nil
	}
	return s.SchedulingPolicy.Gang.MinCount
}

// validateSchedulingUpdate lets only the count of a gang change.
func validateSchedulingUpdate(s, was *batchv1.JobSchedulingConfiguration, path *field.Path) field.ErrorList {
	errs := keepSet(path, s, was)
	if s == nil || was == nil {
		return errs
	}
	at, policy, before := path.Child("schedulingPolicy"), s.SchedulingPolicy, was.SchedulingPolicy
	errs = append(errs, keepSet(at, policy, before)...)
	if policy != nil && before != nil && (policy.Basic != nil) != (before.Basic != nil) {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may be updated"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.SchedulingConstraints, was.SchedulingConstraints, path.Child("schedulingConstraints"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.DisruptionMode, was.DisruptionMode, path.Child("disruptionMode"))...)
	return append(errs, apivalidation.ValidateImmutableField(s.ResourceClaims, was.ResourceClaims, path.Child("resourceClaims"))...)
}

// keepSet requires that a field stays set, or not set.
func keepSet[T any](path *field.Path, now, was *T) field.ErrorList {
	return validate.UpdatePointer(context.Background(), operation.Operation{Type: operation.Update}, path, now, was, validate.NoSet, validate.NoUnset)
}
