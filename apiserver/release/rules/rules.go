// Package rules owns what the API server validates, and the defaults that it sets, only while a
// feature gate is off: rules that later releases have dropped, or that a gate drops, and that no
// field shows.
//
// Package apis validates as the newest release does with all its gates on, but for the few that
// this release has off; these rules refuse what a release without the gate, or with the gate
// off, refuses beyond that, and allow what those few allow and what only a gate refuses. An
// object that breaks such a rule already may go on to break it in updates, as in
// Kubernetes: a newer release, or a gate that was on, has let it in.
package rules

import (
	"reflect"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// rule is what is refused unless a gate is on. One of its functions is set.
type rule struct {
	gate string
	// unless is another gate, if any, that allows the same.
	unless string
	// name, valid and status replace the rule of the names, the validation of writes, and that of
	// the status of a kind, whose Go type is that of kind.
	name   func(name string, prefix bool) []string
	valid  func(obj runtime.Object) field.ErrorList
	status func(obj, old runtime.Object) field.ErrorList
	kind   runtime.Object
	// defaults are set after those of the kind.
	defaults func(obj runtime.Object)
	// object returns the errors of an object.
	object func(obj runtime.Object) field.ErrorList
	// change returns the errors of an update, or of an update by the view, if one is named.
	change func(obj, old runtime.Object) field.ErrorList
	view   string
	// refusal reports whether an error of package apis in an update is that of a gate which the
	// newest release has off by default.
	refusal func(obj runtime.Object, err *field.Error) bool
}

// all are the rules. Their gates are those of Kubernetes.
func all() []rule {
	return []rule{
		{gate: "ContainerRestartRules", object: restartPolicies},
		{gate: "DRAFractionalCapacityRange", kind: &resourcev1.ResourceSlice{}, valid: sliceWithoutFractions},
		{gate: "DownwardAPIHugePages", object: hugePages},
		{gate: "ElasticIndexedJob", change: completions},
		{gate: "ExpandPersistentVolumes", change: expansion},
		{gate: "HPAScaleToZero", object: scaleToZero},
		{gate: "InPlacePodLevelResourcesVerticalScaling", view: "resize", change: resourcesOfPod},
		{gate: "InPlacePodVerticalScalingInitContainers", view: "resize", change: resourcesOfInit},
		{gate: "JobManagedBy", kind: &batchv1.Job{}, status: statusOfJob},
		{gate: "JobMutableNodeSchedulingDirectives", change: scheduling},
		{gate: "MatchLabelKeysInPodTopologySpreadSelectorMerge", object: spreadKeys},
		{gate: "MixedProtocolLBService", object: mixedProtocols},
		{gate: "MutableCSINodeAllocatableCount", change: attachable},
		{gate: "MutablePVNodeAffinity", refusal: affinityOfVolume},
		{gate: "MutablePodResourcesForSuspendedJobs", change: resources},
		{gate: "MutableSchedulingDirectivesForSuspendedJobs", change: schedulingOfStarted},
		{gate: "MutableSchedulingDirectivesForSuspendedJobs", unless: "MutablePodResourcesForSuspendedJobs", change: labelsOfStarted},
		{gate: "PodAffinityNamespaceSelector", object: affinityScope},
		{gate: "PodLevelResourcesFixDefaulting", kind: &corev1.Pod{}, defaults: podResources},
		{gate: "PreferSameTrafficDistribution", object: preferSame},
		{gate: "ReadWriteOncePod", object: readWriteOncePod},
		{gate: "RecoverVolumeExpansionFailure", change: smallerClaims},
		{gate: "RelaxedDNSSearchValidation", object: searches},
		{gate: "RelaxedEnvironmentVariableValidation", object: variableNames},
		{gate: "RelaxedServiceNameValidation", kind: &corev1.Service{}, name: apivalidation.NameIsDNS1035Label},
		{gate: "SCTPSupport", object: sctp},
		{gate: "TaintTolerationComparisonOperators", object: comparisons},
		{gate: "VolumeAttributesClass", object: attributesScope},
	}
}

// ActsOn reports whether a rule depends on a gate.
func ActsOn(gate string) bool {
	return slices.ContainsFunc(all(), func(r rule) bool { return r.gate == gate })
}

// Apply adds the rules whose gates are off to the validation of a kind. enabled reports
// whether a gate is on; it is off at releases before the first one that has it.
func Apply(kind *resource.Kind, enabled func(gate string) bool) {
	rules := slices.DeleteFunc(all(), func(r rule) bool {
		return enabled(r.gate) != (r.refusal != nil) || r.unless != "" && enabled(r.unless)
	})
	if len(rules) == 0 {
		return
	}
	for _, r := range rules {
		switch {
		case reflect.TypeOf(kind.New()) != reflect.TypeOf(r.kind):
		case r.name != nil:
			kind.NameRule = r.name
		case r.valid != nil:
			kind.Validate = r.valid
		case r.status != nil:
			kind.ValidateStatus = r.status
		case r.defaults != nil:
			defaults := kind.Default
			kind.Default = func(obj runtime.Object) {
				defaults(obj)
				r.defaults(obj)
			}
		}
	}
	onCreate, onUpdate := kind.ValidateCreate, kind.ValidateUpdate
	kind.ValidateCreate = func(obj runtime.Object) field.ErrorList {
		return refused(onCreate(obj), rules, obj, nil)
	}
	ofUpdates := ofView(rules, "")
	kind.ValidateUpdate = func(obj, old runtime.Object) field.ErrorList {
		return refused(allowed(onUpdate(obj, old), rules, obj), ofUpdates, obj, old)
	}
	for i := range kind.Views { // such as ephemeral containers
		validate, ofUpdates := kind.Views[i].Validate, ofView(rules, kind.Views[i].Name)
		kind.Views[i].Validate = func(obj, old runtime.Object) field.ErrorList {
			return refused(validate(obj, old), ofUpdates, obj, old)
		}
	}
}

// ofView returns the rules that hold for updates by a view, or, for an empty name, for others:
// those of all updates, and its own.
func ofView(rules []rule, view string) []rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return r.view != "" && r.view != view })
}

// allowed removes the errors of gates that are on.
func allowed(errs field.ErrorList, rules []rule, obj runtime.Object) field.ErrorList {
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.refusal != nil && r.refusal(obj, err) })
	})
}

// refused adds the errors of rules, in place of those of the same type and field. old is
// nil on create.
func refused(errs field.ErrorList, rules []rule, obj, old runtime.Object) field.ErrorList {
	add := func(more field.ErrorList) {
		errs = append(slices.DeleteFunc(errs, func(e *field.Error) bool {
			return slices.ContainsFunc(more, func(m *field.Error) bool { return m.Field == e.Field && m.Type == e.Type })
		}), more...)
	}
	for _, r := range rules {
		switch {
		case r.object != nil && (old == nil || len(r.object(old)) == 0):
			add(r.object(obj))
		case r.change != nil && old != nil:
			add(r.change(obj, old))
		}
	}
	return errs
}
