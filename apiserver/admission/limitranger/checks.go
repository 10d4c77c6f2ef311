package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// subject is what a limit applies to: a container, a pod or a claim.
type subject struct {
	kind             corev1.LimitType
	requests, limits corev1.ResourceList
}

// check returns an error if the subject violates the bound of a resource.
type check func(s subject, name corev1.ResourceName, bound resource.Quantity) error

// checkPod checks a pod against a limit of containers or of pods.
func checkPod(limit corev1.LimitRangeItem, pod *corev1.Pod) []error {
	var errs []error
	switch limit.Type {
	case corev1.LimitTypeContainer:
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			errs = append(errs, checkAll(limit, subject{limit.Type, c.Resources.Requests, c.Resources.Limits}, maximum)...)
		}
	case corev1.LimitTypePod:
		options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
		errs = checkAll(limit, subject{limit.Type, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)}, maximum)
	}
	return errs
}

// checkClaim checks a claim against a limit of claims. A claim has no limits.
func checkClaim(limit corev1.LimitRangeItem, claim *corev1.PersistentVolumeClaim) []error {
	if limit.Type != corev1.LimitTypePersistentVolumeClaim {
		return nil
	}
	limit.MaxLimitRequestRatio = nil
	return checkAll(limit, subject{limit.Type, claim.Spec.Resources.Requests, nil}, maximumRequest)
}

// checkAll returns the errors of all checks, by resource name.
func checkAll(limit corev1.LimitRangeItem, s subject, maximum check) []error {
	var errs []error
	for _, rule := range []struct {
		bounds corev1.ResourceList
		holds  check
	}{
		{limit.Min, minimum}, {limit.Max, maximum}, {limit.MaxLimitRequestRatio, ratio},
	} {
		for _, name := range slices.Sorted(maps.Keys(rule.bounds)) {
			if err := rule.holds(s, name, rule.bounds[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func minimum(s subject, name corev1.ResourceName, bound resource.Quantity) error {
	request, requested := s.requests[name]
	limit, limited := s.limits[name]
	switch {
	case !requested:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, s.kind, &bound)
	case request.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, s.kind, &bound, &request)
	case limited && limit.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, s.kind, &bound, &limit)
	}
	return nil
}

func maximum(s subject, name corev1.ResourceName, bound resource.Quantity) error {
	limit, limited := s.limits[name]
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, s.kind, &bound)
	case limit.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, s.kind, &bound, &limit)
	}
	if _, requested := s.requests[name]; requested {
		return maximumRequest(s, name, bound)
	}
	return nil
}

func maximumRequest(s subject, name corev1.ResourceName, bound resource.Quantity) error {
	request, requested := s.requests[name]
	switch {
	case !requested:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, s.kind, &bound)
	case request.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, s.kind, &bound, &request)
	}
	return nil
}

// ratio checks how many times its request a limit may be.
func ratio(s subject, name corev1.ResourceName, bound resource.Quantity) error {
	request, limit := s.requests[name], s.limits[name]
	switch {
	case request.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, s.kind, &bound)
	case limit.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, s.kind, &bound)
	}
	if got := quotient(limit, request); got*1000 > float64(bound.MilliValue()) {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, s.kind, &bound, got)
	}
	return nil
}

// quotient divides two quantities: in thousandths, unless one of them is too large
// for that.
func quotient(a, b resource.Quantity) float64 {
	if a.Value() <= resource.MaxMilliValue && b.Value() <= resource.MaxMilliValue {
		return float64(a.MilliValue()) / float64(b.MilliValue())
	}
	return float64(a.Value()) / float64(b.Value())
}
