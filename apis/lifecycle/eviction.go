package lifecycle

import (
	"fmt"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// The limits of lists of a status. A pod names ten responders; one more evicts it by default.
const (
	maxRequesters = 100
	maxResponders = 11
)

// evictions are what all requests for a target become, and what its responders act on.
var evictions = resource.Type[*lifecyclev1alpha1.Eviction]{
	Name: "evictions", Namespaced: true,
	ValidateCreate: func(e *lifecyclev1alpha1.Eviction) field.ErrorList {
		path, pod := field.NewPath("spec", "target"), e.Spec.Target.Pod
		if pod == nil {
			return validateTarget(path, false, "", "")
		}
		return validateTarget(path, true, pod.Name, pod.UID)
	},
	ValidateUpdate: func(e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
		return immutable(field.NewPath("spec", "target"), e.Spec.Target, old.Spec.Target)
	},
	RequireVersion: true,
	Generation:     true,
	Status:         true,
	StatusOnly:     true,
	Columns:        evictionColumns(),
	RestrictStatus: func(env *resource.Env, e, old *lifecyclev1alpha1.Eviction) field.ErrorList {
		return validateEvictionStatus(&e.Status, &old.Status, env.Clock.Now())
	},
}

// validateEvictionStatus holds the writers of a status, which are the controller and the
// responders, to the order of an eviction: responders are listed first, become active one
// after the other, and only the active one reports. What has ended stays as it is.
func validateEvictionStatus(s, old *lifecyclev1alpha1.EvictionStatus, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	errs := validateConditions(path.Child("conditions"), s.Conditions)
	errs = append(errs, validateObserved(path.Child("observedGeneration"), s.ObservedGeneration, old.ObservedGeneration)...)
	ended := false
	for _, condition := range []lifecyclev1alpha1.EvictionConditionType{lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionFailed} {
		was := meta.FindStatusCondition(old.Conditions, string(condition))
		is := meta.FindStatusCondition(s.Conditions, string(condition))
		if was != nil && was.Status == metav1.ConditionTrue {
			ended = true
			if is == nil || is.Status == metav1.ConditionFalse || is.Reason != was.Reason {
				errs = append(errs, field.Invalid(path.Child("conditions"), s.Conditions, fmt.Sprintf("%s condition status cannot be reverted", condition)))
			}
		}
		ended = ended || is != nil && is.Status == metav1.ConditionTrue
	}
	errs = append(errs, validateRequesters(path.Child("requesters"), s.Requesters)...)
	r := newResponders(s, old, ended, now)
	errs = append(errs, r.validateTargets(path.Child("targetResponders"))...)
	return append(errs, r.validateReports(path.Child("responders"))...)
}

func validateRequesters(path *field.Path, requesters []lifecyclev1alpha1.Requester) field.ErrorList {
	errs := unique(path, requesters, maxRequesters, func(r *lifecyclev1alpha1.Requester) string { return r.Name })
	if len(requesters) > maxRequesters {
		return errs
	}
	for i, r := range requesters {
		errs = append(errs, podspec.EvictionParticipantIsValid(path.Index(i).Child("name"), r.Name)...)
		errs = append(errs, resource.RequiredOneOf(path.Index(i).Child("intent"), r.Intent,
			lifecyclev1alpha1.RequesterIntentEviction, lifecyclev1alpha1.RequesterIntentWithdrawn)...)
	}
	return errs
}
