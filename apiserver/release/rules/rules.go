// Package rules owns what the API server validates only while a feature gate is off: rules
// that later releases have dropped, or that a gate drops, and that no field shows.
//
// Package apis validates as the newest release does with all its gates on; these rules
// refuse what a release without the gate, or with the gate off, refuses beyond that. An
// object that breaks such a rule already may go on to break it in updates, as in
// Kubernetes: a newer release, or a gate that was on, has let it in.
package rules

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// rule is what is refused unless a gate is on. One of its functions is set.
type rule struct {
	gate string
	// object returns the errors of an object.
	object func(obj runtime.Object) field.ErrorList
	// change returns the errors of an update.
	change func(obj, old runtime.Object) field.ErrorList
}

// all are the rules. Their gates are those of Kubernetes.
func all() []rule {
	return []rule{
		{gate: "ContainerRestartRules", object: restartPolicies},
		{gate: "DownwardAPIHugePages", object: hugePages},
		{gate: "ElasticIndexedJob", change: completions},
		{gate: "ExpandPersistentVolumes", change: expansion},
		{gate: "HPAScaleToZero", object: scaleToZero},
		{gate: "JobMutableNodeSchedulingDirectives", change: scheduling},
		{gate: "MixedProtocolLBService", object: mixedProtocols},
		{gate: "MutablePodResourcesForSuspendedJobs", change: resources},
		{gate: "MutableSchedulingDirectivesForSuspendedJobs", change: schedulingOfStarted},
		{gate: "PodAffinityNamespaceSelector", object: affinityScope},
		{gate: "PreferSameTrafficDistribution", object: preferSame},
		{gate: "ReadWriteOncePod", object: readWriteOncePod},
		{gate: "RecoverVolumeExpansionFailure", change: smallerClaims},
		{gate: "RelaxedDNSSearchValidation", object: searches},
		{gate: "RelaxedEnvironmentVariableValidation", object: variableNames},
		{gate: "RelaxedServiceNameValidation", object: serviceName},
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
	rules := slices.DeleteFunc(all(), func(r rule) bool { return enabled(r.gate) })
	if len(rules) == 0 {
		return
	}
	onCreate, onUpdate := kind.ValidateCreate, kind.ValidateUpdate
	kind.ValidateCreate = func(obj runtime.Object) field.ErrorList {
		return refused(onCreate(obj), rules, obj, nil)
	}
	kind.ValidateUpdate = func(obj, old runtime.Object) field.ErrorList {
		return refused(onUpdate(obj, old), rules, obj, old)
	}
	for i := range kind.Views { // such as ephemeral containers
		validate := kind.Views[i].Validate
		kind.Views[i].Validate = func(obj, old runtime.Object) field.ErrorList {
			return refused(validate(obj, old), rules, obj, old)
		}
	}
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
