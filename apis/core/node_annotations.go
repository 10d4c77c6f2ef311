package core

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// taintsAnnotation held a node's taints, as JSON, before they became a field.
const taintsAnnotation = "scheduler.alpha.kubernetes.io/taints"

// validateNodeAnnotations validates the annotations that schedulers read as JSON.
func validateNodeAnnotations(annotations map[string]string) field.ErrorList {
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	if text := annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			errs = append(errs, field.Invalid(path, taintsAnnotation, err.Error()))
		} else {
			errs = append(errs, validateTaints(taints, path.Child(taintsAnnotation))...)
		}
	}
	if text := annotations[corev1.PreferAvoidPodsAnnotationKey]; text != "" {
		var avoid corev1.AvoidPods
		if err := json.Unmarshal([]byte(text), &avoid); err != nil {
			errs = append(errs, field.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error()))
		} else {
			errs = append(errs, validateAvoidedPods(avoid.PreferAvoidPods, path.Child(corev1.PreferAvoidPodsAnnotationKey))...)
		}
	}
	return errs
}

// validateAvoidedPods requires that each entry names the controller of the pods.
func validateAvoidedPods(entries []corev1.PreferAvoidPodsEntry, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, entry := range entries {
		path := path.Index(i).Child("PodSignature")
		switch owner := entry.PodSignature.PodController; {
		case owner == nil:
			errs = append(errs, field.Required(path, ""))
		case !ptr.Deref(owner.Controller, false):
			errs = append(errs, field.Invalid(path.Child("PodController", "Controller"), false, "must point to a controller"))
		}
	}
	return errs
}
