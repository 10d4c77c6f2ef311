package core

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// DefaultPodResources sets defaults of pod-level resources (KEP-2837) when a pod is decoded,
// as releases do that have no feature gate PodLevelResourcesFixDefaulting, or have it off.
// They do not include the containers and requests that admission adds later.
func DefaultPodResources(p *corev1.Pod) {
	if p.Spec.Resources == nil {
		return
	}
	limitHugePages(p)
	if len(p.Spec.Resources.Limits) > 0 {
		requestForContainers(p)
	}
}

// completePodResources sets what is missing of pod-level resources: requests, and then
// limits, which are not less than they.
func completePodResources(p *corev1.Pod) {
	if r := p.Spec.Resources; r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	limitHugePages(p)
	requestForContainers(p)
	limitToContainers(p)
}

// keepPodResources keeps the pod-level resources of a pod, if an update leaves them out.
func keepPodResources(p, old *corev1.Pod) {
	if p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
}

// limitHugePages sets pod-level limits, which for huge pages are requests, too, to
// the huge pages of the containers, if the pod has pod-level resources.
func limitHugePages(p *corev1.Pod) {
	r := p.Spec.Resources
	if len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	for name, sum := range resourcehelper.AggregateContainerLimits(p, resourcehelper.PodResourcesOptions{}) {
		if _, requested := r.Requests[name]; podspec.IsHugePages(name) && !requested {
			addResource(&r.Limits, name, sum.DeepCopy())
		}
	}
}

// requestForContainers sets missing pod-level requests: to the sum of the containers'
// requests, or else to the limit.
func requestForContainers(p *corev1.Pod) {
	r := p.Spec.Resources
	for name, sum := range resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{}) {
		if resourcehelper.IsSupportedPodLevelResource(name) && podspec.MayOvercommit(name) {
			addResource(&r.Requests, name, sum.DeepCopy())
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			addResource(&r.Requests, name, limit.DeepCopy())
		}
	}
}

// limitToContainers sets missing pod-level limits of resources that are requested and that
// all containers limit: to the sum of their limits, or to the request if that is larger.
func limitToContainers(p *corev1.Pod) {
	r := p.Spec.Resources
	sums := resourcehelper.AggregateContainerLimits(p, resourcehelper.PodResourcesOptions{})
	for name, request := range r.Requests {
		limit, ok := sums[name]
		if !ok || !resourcehelper.IsSupportedPodLevelResource(name) || !allLimit(&p.Spec, name) {
			continue
		}
		if request.Cmp(limit) > 0 {
			limit = request
		}
		addResource(&r.Limits, name, limit.DeepCopy())
	}
}

// allLimit reports whether all containers limit a resource.
func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for _, c := range podspec.All(spec) {
		if _, ok := c.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
}
