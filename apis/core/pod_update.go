package core

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
)

// updatablePodFields lists, for messages, the fields of a pod's spec that may
// change.
var updatablePodFields = strings.Join([]string{
	"`spec.containers[*].image`",
	"`spec.initContainers[*].image`",
	"`spec.activeDeadlineSeconds`",
	"`spec.tolerations` (only additions to existing tolerations)",
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
}, ",")

func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	errs := validatePodAnnotationUpdate(p, old)
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(path.Child("containers"), "pod updates may not add or remove containers"))
	}
	if len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return append(errs, field.Forbidden(path.Child("initContainers"), "pod updates may not add or remove containers"))
	}
	errs = append(errs, deadlineOnlyShrinks(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, tolerationsOnlyGrow(p.Spec.Tolerations, old.Spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, schedulingGatesOnlyGo(p.Spec.SchedulingGates, old.Spec.SchedulingGates, path.Child("schedulingGates"))...)
	if apiequality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	masked := p.Spec.DeepCopy()
	maskUpdatable(masked, &old.Spec)
	if len(old.Spec.SchedulingGates) > 0 {
		errs = append(errs, nodeChoiceOnlyNarrows(masked, &old.Spec, path)...)
	}
	if !apiequality.Semantic.DeepEqual(*masked, old.Spec) {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("pod updates may not change fields other than %s\n%s",
			updatablePodFields, diff.Diff(old.Spec, *masked))))
	}
	return errs
}

// validatePodAnnotationUpdate forbids changes of the annotations that a node reads
// when it starts the pod.
func validatePodAnnotationUpdate(p, old *corev1.Pod) field.ErrorList {
	kinds := func(key string) (what string, bound bool) {
		switch {
		case key == corev1.MirrorPodAnnotationKey:
			return "mirror pod annotation", true
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			return "AppArmor annotations", true
		}
		return "", false
	}
	path := field.NewPath("metadata", "annotations")
	var errs field.ErrorList
	for key, value := range old.Annotations {
		now, ok := p.Annotations[key]
		if what, bound := kinds(key); bound && (!ok || now != value) {
			errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update "+what))
		}
	}
	for key := range p.Annotations {
		_, ok := old.Annotations[key]
		if what, bound := kinds(key); bound && !ok {
			errs = append(errs, field.Forbidden(path.Key(key), "may not add "+what))
		}
	}
	return errs
}

func deadlineOnlyShrinks(now, before *int64, path *field.Path) field.ErrorList {
	switch {
	case now == nil && before == nil:
		return nil
	case now == nil:
		return field.ErrorList{field.Invalid(path, nil, "must not update from a positive integer to nil value")}
	case *now < 0 || *now > math.MaxInt32:
		return field.ErrorList{field.Invalid(path, *now, validation.InclusiveRangeError(0, math.MaxInt32))}
	case before != nil && *before < *now:
		return field.ErrorList{field.Invalid(path, *now, "must be less than or equal to previous value")}
	}
	return nil
}

func tolerationsOnlyGrow(now, before []corev1.Toleration, path *field.Path) field.ErrorList {
	for _, old := range before {
		found := false
		for _, t := range now {
			t.TolerationSeconds = old.TolerationSeconds
			found = found || apiequality.Semantic.DeepEqual(t, old)
		}
		if !found {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

func schedulingGatesOnlyGo(now, before []corev1.PodSchedulingGate, path *field.Path) field.ErrorList {
	known := sets.New[string]()
	for _, gate := range before {
		known.Insert(gate.Name)
	}
	var errs field.ErrorList
	for i, gate := range now {
		if !known.Has(gate.Name) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	return errs
}

// maskUpdatable copies from old the fields whose changes other rules validate.
func maskUpdatable(spec, old *corev1.PodSpec) {
	for i := range spec.Containers {
		spec.Containers[i].Image = old.Containers[i].Image
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Image = old.InitContainers[i].Image
	}
	spec.ActiveDeadlineSeconds = old.ActiveDeadlineSeconds
	spec.SchedulingGates = old.SchedulingGates
	spec.Tolerations = old.Tolerations
	was, is := old.TerminationGracePeriodSeconds, spec.TerminationGracePeriodSeconds
	if was != nil && *was < 0 && is != nil && *is == 1 {
		spec.TerminationGracePeriodSeconds = was
	}
}

// nodeChoiceOnlyNarrows allows the node selector and affinity of a pod with
// scheduling gates to become stricter (KEP-3838). It copies the fields from old
// after it has validated them.
func nodeChoiceOnlyNarrows(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, value := range old.NodeSelector {
		if now, ok := spec.NodeSelector[key]; !ok || now != value {
			errs = append(errs, field.Invalid(path.Child("nodeSelector"), spec.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	spec.NodeSelector = old.NodeSelector

	before, now := podspec.NodeAffinity(old), podspec.NodeAffinity(spec)
	errs = append(errs, nodeAffinityOnlyNarrows(now, before, path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))...)
	if apiequality.Semantic.DeepEqual(now, before) {
		return errs
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.NodeAffinity = before
	if old.Affinity == nil && *spec.Affinity == (corev1.Affinity{}) {
		spec.Affinity = nil
	}
	return errs
}

func nodeAffinityOnlyNarrows(now, before *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	if before == nil || before.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	was := before.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var is []corev1.NodeSelectorTerm
	if now != nil && now.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		is = now.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	// Terms are alternatives: another one would allow more nodes.
	if len(was) > 0 && len(was) != len(is) {
		return field.ErrorList{field.Invalid(path, is, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i := range was {
		// An empty term selects no node, so that any addition allows more nodes.
		empty := len(was[i].MatchExpressions)+len(was[i].MatchFields) == 0
		grown := len(is[i].MatchExpressions)+len(is[i].MatchFields) > 0
		if empty && grown || !beginsWith(is[i].MatchExpressions, was[i].MatchExpressions) || !beginsWith(is[i].MatchFields, was[i].MatchFields) {
			errs = append(errs, field.Invalid(path.Index(i), is[i], "only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

func beginsWith(list, start []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(start) && apiequality.Semantic.DeepEqual(list[:len(start)], start)
}
