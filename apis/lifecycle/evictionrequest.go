package lifecycle

import (
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// evictionRequests are what requesters ask for: that a pod be evicted, or no longer be.
var evictionRequests = resource.Type[*lifecyclev1alpha1.EvictionRequest]{
	Name: "evictionrequests", Namespaced: true,
	ValidateCreate: func(r *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
		path := field.NewPath("spec")
		errs := validateRequestTarget(path.Child("target"), &r.Spec.Target)
		errs = append(errs, podspec.EvictionParticipantIsNotReserved(path.Child("requester"), r.Spec.Requester)...)
		return append(errs, podspec.EvictionParticipantIsValid(path.Child("requester"), r.Spec.Requester)...)
	},
	Validate: func(r *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
		return resource.RequiredOneOf(field.NewPath("spec", "intent"), r.Spec.Intent,
			lifecyclev1alpha1.EvictionRequestIntentEviction, lifecyclev1alpha1.EvictionRequestIntentWithdrawn)
	},
	ValidateUpdate: func(r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
		path := field.NewPath("spec")
		errs := immutable(path.Child("target"), r.Spec.Target, old.Spec.Target)
		return append(errs, immutable(path.Child("requester"), r.Spec.Requester, old.Spec.Requester)...)
	},
	RequireVersion: true,
	Generation:     true,
	Status:         true,
	StatusOnly:     true,
	Columns: []resource.Column[*lifecyclev1alpha1.EvictionRequest]{
		resource.Name[*lifecyclev1alpha1.EvictionRequest](),
		requestColumn("Target", "target", func(s *lifecyclev1alpha1.EvictionRequestSpec) string {
			if s.Target.Pod == nil {
				return unset
			}
			return s.Target.Pod.Name
		}),
		requestColumn("Target Type", "target", func(s *lifecyclev1alpha1.EvictionRequestSpec) string { return targetType(s.Target.Pod != nil) }),
		{Name: "Status", Description: lifecyclev1alpha1.EvictionRequestStatus{}.SwaggerDoc()["conditions"],
			Value: func(r *lifecyclev1alpha1.EvictionRequest) any {
				return progress(r.Status.ObservedGeneration, r.Status.Conditions)
			}},
		requestColumn("Requester", "requester", func(s *lifecyclev1alpha1.EvictionRequestSpec) string { return s.Requester }),
		requestColumn("Intent", "intent", func(s *lifecyclev1alpha1.EvictionRequestSpec) string { return string(s.Intent) }),
		resource.Age[*lifecyclev1alpha1.EvictionRequest](),
	},
	ValidateStatus: func(r, old *lifecyclev1alpha1.EvictionRequest) field.ErrorList {
		path := field.NewPath("status")
		errs := validateConditions(path.Child("conditions"), r.Status.Conditions)
		return append(errs, validateObserved(path.Child("observedGeneration"), r.Status.ObservedGeneration, old.Status.ObservedGeneration)...)
	},
}

func requestColumn(name, property string, value func(*lifecyclev1alpha1.EvictionRequestSpec) string) resource.Column[*lifecyclev1alpha1.EvictionRequest] {
	return resource.Column[*lifecyclev1alpha1.EvictionRequest]{
		Name: name, Description: lifecyclev1alpha1.EvictionRequestSpec{}.SwaggerDoc()[property],
		Value: func(r *lifecyclev1alpha1.EvictionRequest) any { return value(&r.Spec) },
	}
}

func validateRequestTarget(path *field.Path, target *lifecyclev1alpha1.EvictionRequestTarget) field.ErrorList {
	if target.Pod == nil {
		return validateTarget(path, false, "", "")
	}
	return validateTarget(path, true, target.Pod.Name, target.Pod.UID)
}
