package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// validateExtendedClaim validates the claim that was created for the pod's extended
// resources: each mapping is of a resource that a container requests.
func validateExtendedClaim(p *corev1.Pod, path *field.Path) field.ErrorList {
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		return nil
	}
	containers := map[string]*corev1.Container{}
	for at, c := range podspec.All(&p.Spec) {
		if at.List != podspec.EphemeralContainers {
			containers[c.Name] = c
		}
	}
	var errs field.ErrorList
	mappings := path.Child("requestMappings")
	if len(status.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	seen := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range status.RequestMappings {
		at := mappings.Index(i)
		if c := containers[m.ContainerName]; c == nil {
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName,
				"must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName,
				"must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, resource.Invalid(at.Child("requestName"), m.RequestName, validation.IsDNS1123Label(m.RequestName))...)
		if seen.Has(m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName),
				field.Duplicate(at.Child("resourceName"), m.ResourceName), field.Duplicate(at.Child("requestName"), m.RequestName))
		}
		seen.Insert(m)
	}
	name := path.Child("resourceClaimName")
	if status.ResourceClaimName == "" {
		return append(errs, field.Required(name, ""))
	}
	return append(errs, resource.Invalid(name, status.ResourceClaimName, apivalidation.NameIsDNSSubdomain(status.ResourceClaimName, false))...)
}

// requestsExtended reports whether the container requests an extended resource by the claim's
// request that claim:CLAIM/REQUEST names.
func requestsExtended(c *corev1.Container, status *corev1.PodExtendedResourceClaimStatus, name string) bool {
	for _, m := range status.RequestMappings {
		amount := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		if m.ContainerName == c.Name && !amount.IsZero() && name == "claim:"+status.ResourceClaimName+"/"+m.RequestName {
			return true
		}
	}
	return false
}
