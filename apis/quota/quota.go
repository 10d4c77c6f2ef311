// Package quota owns the computation of the usage that objects have of a
// ResourceQuota. It has no client and no clock: the controller that writes the
// status of quotas and the admission plugin that enforces them pass both.
//
// It has the evaluators for kinds of which more than the number of objects is
// limited, as implementations of k8s.io/apiserver/pkg/quota/v1.
package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	library "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// Lists lists the objects of a kind in a namespace. It is nil for a caller that
// only needs the usage of single objects.
type Lists struct {
	Pods, Services, PersistentVolumeClaims generic.ListFuncByNamespace
}

// Evaluators returns the evaluators of pods, services and persistent volume
// claims.
func Evaluators(lists Lists, now func() time.Time) []library.Evaluator {
	return []library.Evaluator{
		pods(now).with(lists.Pods),
		services().with(lists.Services),
		claims().with(lists.PersistentVolumeClaims),
	}
}

// Counted returns the resource type whose objects a quota's resource counts:
// count/<resource>[.<group>], or an older name such as configmaps. The core group
// is "". The types that Evaluators cover are not among them.
func Counted(name corev1.ResourceName) (r schema.GroupResource, alias corev1.ResourceName, ok bool) {
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceReplicationControllers, corev1.ResourceQuotas:
		return schema.GroupResource{Resource: string(name)}, name, true
	}
	counted, ok := strings.CutPrefix(string(name), "count/")
	if !ok {
		return schema.GroupResource{}, "", false
	}
	r = schema.ParseGroupResource(counted)
	switch r {
	case schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "services"}, schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return schema.GroupResource{}, "", false
	case schema.GroupResource{Resource: "configmaps"}, schema.GroupResource{Resource: "secrets"},
		schema.GroupResource{Resource: "replicationcontrollers"}, schema.GroupResource{Resource: "resourcequotas"}:
		return r, corev1.ResourceName(r.Resource), true
	case schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"}:
		// Events are never limited.
		return schema.GroupResource{}, "", false
	}
	return r, "", true
}

// evaluator implements the library's Evaluator.
type evaluator struct {
	group, resource string
	list            generic.ListFuncByNamespace
	// measures reports whether the evaluator covers a quota's resource. usage
	// returns an object's usage of all that it covers.
	measures func(corev1.ResourceName) bool
	usage    generic.UsageFunc
	// inScope is nil if a quota with a scope never limits the objects.
	inScope generic.MatchesScopeFunc
	// constraints and handles are for admission: the fields that an object must set
	// if a resource is limited, and the requests that may change the usage.
	constraints func(required []corev1.ResourceName, item runtime.Object) error
	handles     func(admission.Attributes) bool
}

var _ library.Evaluator = &evaluator{}

func (e *evaluator) with(list generic.ListFuncByNamespace) *evaluator {
	e.list = list
	if list == nil {
		e.list = func(string) ([]runtime.Object, error) { return nil, errors.New("nothing lists objects here") }
	}
	return e
}

// GroupResource implements library.Evaluator.
func (e *evaluator) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: e.group, Resource: e.resource}
}

// Constraints implements library.Evaluator.
func (e *evaluator) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	if e.constraints == nil {
		return nil
	}
	return e.constraints(required, item)
}

// Handles implements library.Evaluator.
func (e *evaluator) Handles(a admission.Attributes) bool { return e.handles(a) }

// Matches implements library.Evaluator.
func (e *evaluator) Matches(quota *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(quota, item, e.MatchingResources, e.scope)
}

// MatchingResources implements library.Evaluator.
func (e *evaluator) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return slices.DeleteFunc(slices.Clone(names), func(name corev1.ResourceName) bool { return !e.measures(name) })
}

// MatchingScopes implements library.Evaluator.
func (e *evaluator) MatchingScopes(item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	var matching []corev1.ScopedResourceSelectorRequirement
	for _, s := range scopes {
		in, err := e.scope(s, item)
		if err != nil {
			return nil, fmt.Errorf("scope %s: %w", s.ScopeName, err)
		}
		if in {
			matching = append(matching, s)
		}
	}
	return matching, nil
}

// UncoveredQuotaScopes implements library.Evaluator.
func (e *evaluator) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	if e.inScope == nil {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(limited), func(l corev1.ScopedResourceSelectorRequirement) bool {
		return slices.ContainsFunc(matched, func(m corev1.ScopedResourceSelectorRequirement) bool { return m.ScopeName == l.ScopeName })
	}), nil
}

// Usage implements library.Evaluator.
func (e *evaluator) Usage(item runtime.Object) (corev1.ResourceList, error) { return e.usage(item) }

// UsageStats implements library.Evaluator.
func (e *evaluator) UsageStats(options library.UsageStatsOptions) (library.UsageStats, error) {
	return generic.CalculateUsageStats(options, e.list, e.scope, e.usage)
}

func (e *evaluator) scope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	if e.inScope == nil {
		return false, nil
	}
	return e.inScope(s, item)
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// kindError tells that an evaluator was given something else than it measures:
// a mistake in the program.
func kindError(want string, got any) error {
	return fmt.Errorf("quota of %s: cannot measure a %T", want, got)
}
