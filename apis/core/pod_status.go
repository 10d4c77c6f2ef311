package core

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// preparePodStatus keeps the fields that a status update must not change: the
// node's copy of the pod may be older, and older nodes leave some fields out.
func preparePodStatus(_ *resource.Env, p, old *corev1.Pod) {
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	if p.Status.ObservedGeneration == 0 {
		p.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	keepConditionGenerations(p.Status.Conditions, old.Status.Conditions)
	// An empty list clears these.
	if p.Status.ResourceClaimStatuses == nil {
		p.Status.ResourceClaimStatuses = old.Status.ResourceClaimStatuses
	}
	// Until the pod has a node, the scheduler removes it when it gives the claim back.
	if p.Status.ExtendedResourceClaimStatus == nil && old.Spec.NodeName != "" {
		p.Status.ExtendedResourceClaimStatus = old.Status.ExtendedResourceClaimStatus
	}
	if p.Status.NodeAllocatableResourceClaimStatuses == nil {
		p.Status.NodeAllocatableResourceClaimStatuses = old.Status.NodeAllocatableResourceClaimStatuses
	}
}

// keepConditionGenerations sets the generations that are missing to those before. A type may
// occur several times: the first occurrence has been the first before.
func keepConditionGenerations(now, before []corev1.PodCondition) {
	generations := map[corev1.PodConditionType][]int64{}
	for _, c := range before {
		generations[c.Type] = append(generations[c.Type], c.ObservedGeneration)
	}
	for i := range now {
		c := &now[i]
		known := generations[c.Type]
		if len(known) == 0 {
			continue
		}
		generations[c.Type] = known[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = known[0]
		}
	}
}

func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	path := field.NewPath("status")
	errs := validatePodAnnotationUpdate(p, old)
	errs = append(errs, podspec.ValidateAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))...)
	errs = append(errs, validatePodConditions(p.Status.Conditions, path.Child("conditions"))...)
	if name := p.Status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		errs = append(errs, resource.Invalid(path.Child("nominatedNodeName"), name, validation.IsDNS1123Subdomain(name))...)
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(path.Child("nominatedNodeName"), "may not be set on pods that are already bound to a node"))
		}
	}
	if p.Status.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), p.Status.ObservedGeneration, "must be a non-negative integer"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(p.Status.QOSClass, old.Status.QOSClass, path.Child("qosClass"))...)
	for _, kind := range []podspec.List{podspec.Containers, podspec.InitContainers, podspec.EphemeralContainers} {
		path := path.Child(statusFields[kind])
		errs = append(errs, endedContainersStayEnded(statusesOf(p, kind), statusesOf(old, kind), &old.Spec, kind, path)...)
		errs = append(errs, validateContainerUsers(statusesOf(p, kind), p.Spec.OS, path)...)
		errs = append(errs, validateAllocated(p, kind, path)...)
		errs = append(errs, validateImageVolumes(statusesOf(p, kind), path)...)
	}
	errs = append(errs, validateClaimStatuses(p, path.Child("resourceClaimStatuses"))...)
	errs = append(errs, validateNodeAllocatable(p, path.Child("nodeAllocatableResourceClaimStatuses"))...)
	errs = append(errs, validateExtendedClaim(p, path.Child("extendedResourceClaimStatus"))...)
	errs = append(errs, validatePodIPs(p, path.Child("podIPs"))...)
	return append(errs, validateHostIPs(p, path.Child("hostIPs"))...)
}

// statusFields holds the names of the fields with the statuses of containers.
var statusFields = map[podspec.List]string{
	podspec.InitContainers:      "initContainerStatuses",
	podspec.Containers:          "containerStatuses",
	podspec.EphemeralContainers: "ephemeralContainerStatuses",
}

func statusesOf(p *corev1.Pod, kind podspec.List) []corev1.ContainerStatus {
	switch kind {
	case podspec.InitContainers:
		return p.Status.InitContainerStatuses
	case podspec.Containers:
		return p.Status.ContainerStatuses
	}
	return p.Status.EphemeralContainerStatuses
}

func validatePodConditions(conditions []corev1.PodCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer"))
		}
		errs = append(errs, resource.Invalid(path.Index(i).Child("type"), string(c.Type), validation.IsQualifiedName(string(c.Type)))...)
	}
	return errs
}

// endedContainersStayEnded forbids that a terminated container runs again, unless
// it may be restarted.
func endedContainersStayEnded(now, before []corev1.ContainerStatus, spec *corev1.PodSpec, kind podspec.List, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, was := range before {
		if was.State.Terminated == nil || mayRestart(spec, kind, was.Name, was.State.Terminated.ExitCode) {
			continue
		}
		for _, is := range now {
			if is.Name == was.Name && is.State.Terminated == nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

// mayRestart reports whether a container that terminated with the exit code may
// be restarted: by its restart rules, else by its restart policy, else by the
// pod's. A rule that restarts all containers applies to each of them.
func mayRestart(spec *corev1.PodSpec, kind podspec.List, name string, exitCode int32) bool {
	if kind == podspec.EphemeralContainers {
		return false
	}
	if podspec.MayRestartAll(spec) {
		return true
	}
	policy := spec.RestartPolicy
	for at, c := range podspec.All(spec) {
		for _, rule := range c.RestartPolicyRules {
			if at.List == kind && c.Name == name && ruleApplies(rule, exitCode) {
				return true
			}
		}
		if at.List == kind && c.Name == name && c.RestartPolicy != nil {
			policy = corev1.RestartPolicy(*c.RestartPolicy)
		}
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exitCode != 0
}

func ruleApplies(rule corev1.ContainerRestartRule, exitCode int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	in := false
	for _, code := range rule.ExitCodes.Values {
		in = in || code == exitCode
	}
	return in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

func validateContainerUsers(statuses []corev1.ContainerStatus, os *corev1.PodOS, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, status := range statuses {
		if status.User == nil || status.User.Linux == nil {
			continue
		}
		user, path := status.User.Linux, path.Index(i).Child("user", "linux")
		if os != nil && os.Name == corev1.Windows {
			errs = append(errs, field.Forbidden(path, "cannot be set for a windows pod"))
			continue
		}
		// The image may name any user of Linux, the pod only those of runAsUser.
		if user.UID < 0 || user.UID > math.MaxUint32 {
			errs = append(errs, field.Invalid(path.Child("uid"), user.UID, validation.InclusiveRangeError(0, math.MaxUint32)))
		}
		errs = append(errs, resource.Invalid(path.Child("gid"), user.GID, validation.IsValidGroupID(user.GID))...)
		for j, group := range user.SupplementalGroups {
			errs = append(errs, resource.Invalid(path.Child("supplementalGroups").Index(j), group, validation.IsValidGroupID(group))...)
		}
	}
	return errs
}

// validateAllocated validates the health of a container's devices: each must
// belong to a resource that the container requests or claims, and occur once.
func validateAllocated(p *corev1.Pod, kind podspec.List, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, status := range statusesOf(p, kind) {
		path := path.Index(i).Child("allocatedResourcesStatus")
		if kind == podspec.EphemeralContainers && len(status.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(path, "must not be specified in container status"))
			continue
		}
		for j, allocated := range status.AllocatedResourcesStatus {
			path := path.Index(j)
			for at, c := range podspec.All(&p.Spec) {
				if at.List == kind && c.Name == status.Name {
					errs = append(errs, validateRequested(c, p.Status.ExtendedResourceClaimStatus, allocated.Name, path.Child("name"))...)
				}
			}
			seen := sets.New[corev1.ResourceID]()
			for k, device := range allocated.Resources {
				path := path.Child("resources").Index(k)
				errs = append(errs, resource.OptionalOneOf(path.Child("health"), &device.Health,
					corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
				if message := device.Message; message != nil && *message == "" {
					errs = append(errs, field.Required(path.Child("message"), "must be non-empty if specified"))
				} else if message != nil && len(*message) > corev1.ResourceHealthMessageMaxLength {
					errs = append(errs, field.TooLong(path.Child("message"), "", corev1.ResourceHealthMessageMaxLength))
				}
				if seen.Has(device.ResourceID) {
					errs = append(errs, field.Duplicate(path.Child("resourceID"), device.ResourceID))
				}
				seen.Insert(device.ResourceID)
			}
		}
	}
	return errs
}

// validateRequested requires that the container requests the resource, or claims it by a
// claim of its pod or, with an extended resource, by the claim that was created for these.
func validateRequested(c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, name corev1.ResourceName, path *field.Path) field.ErrorList {
	if !strings.HasPrefix(string(name), "claim:") {
		if _, ok := c.Resources.Requests[name]; !ok {
			return field.ErrorList{field.Invalid(path, name, "must match one of the container's resource requests")}
		}
		return nil
	}
	for _, claim := range c.Resources.Claims {
		full := "claim:" + claim.Name
		if claim.Request != "" {
			full += "/" + claim.Request
		}
		if full == string(name) {
			return nil
		}
	}
	if extended != nil && requestsExtended(c, extended, string(name)) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")}
}

func validateClaimStatuses(p *corev1.Pod, path *field.Path) field.ErrorList {
	claims := sets.New[string]()
	for _, claim := range p.Spec.ResourceClaims {
		claims.Insert(claim.Name)
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, status := range p.Status.ResourceClaimStatuses {
		path := path.Index(i)
		if !claims.Has(status.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), status.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		errs = append(errs, resource.Unique(path.Child("name"), status.Name, seen)...)
		if name := status.ResourceClaimName; name != nil {
			errs = append(errs, resource.Invalid(path.Child("resourceClaimName"), *name, validation.IsDNS1123Subdomain(*name))...)
		}
	}
	return errs
}

// validateNodeAllocatable requires that each status names a claim that the pod uses.
func validateNodeAllocatable(p *corev1.Pod, path *field.Path) field.ErrorList {
	used := sets.New[string]()
	for _, claim := range p.Spec.ResourceClaims {
		used.Insert(ptr.Deref(claim.ResourceClaimName, ""))
	}
	for _, status := range p.Status.ResourceClaimStatuses {
		used.Insert(ptr.Deref(status.ResourceClaimName, ""))
	}
	if extended := p.Status.ExtendedResourceClaimStatus; extended != nil {
		used.Insert(extended.ResourceClaimName)
	}
	used.Delete("")
	var errs field.ErrorList
	for i, status := range p.Status.NodeAllocatableResourceClaimStatuses {
		path := path.Index(i).Child("resourceClaimName")
		if status.ResourceClaimName == "" {
			errs = append(errs, field.Required(path, "must not be empty"))
		}
		if !used.Has(status.ResourceClaimName) {
			errs = append(errs, field.Invalid(path, status.ResourceClaimName, "no mapping found in pod reference"))
		}
	}
	return errs
}

// maxImageRef is how long the reference of an image volume may be, in bytes (KEP-5365).
const maxImageRef = 256

func validateImageVolumes(statuses []corev1.ContainerStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, status := range statuses {
		for j, mount := range status.VolumeMounts {
			if mount.VolumeStatus == nil || mount.VolumeStatus.Image == nil {
				continue
			}
			path := path.Index(i).Child("volumeMounts").Index(j).Child("volumeStatus", "image", "imageRef")
			if ref := mount.VolumeStatus.Image.ImageRef; ref == "" {
				errs = append(errs, field.Required(path, "imageRef must not be empty"))
			} else if len(ref) > maxImageRef {
				errs = append(errs, field.TooLong(path, "", maxImageRef))
			}
		}
	}
	return errs
}

func validatePodIPs(p *corev1.Pod, path *field.Path) field.ErrorList {
	ips := make([]string, len(p.Status.PodIPs))
	for i, ip := range p.Status.PodIPs {
		ips[i] = ip.IP
	}
	return validateAddresses(ips, p.Status.PodIPs, path)
}

func validateHostIPs(p *corev1.Pod, path *field.Path) field.ErrorList {
	if len(p.Status.HostIPs) == 0 {
		return nil
	}
	var errs field.ErrorList
	if first := p.Status.HostIPs[0].IP; first != p.Status.HostIP {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), first, "must be equal to `hostIP`"))
	}
	ips := make([]string, len(p.Status.HostIPs))
	for i, ip := range p.Status.HostIPs {
		ips[i] = ip.IP
	}
	return append(errs, validateAddresses(ips, p.Status.HostIPs, path)...)
}

// validateAddresses allows one address of each family.
func validateAddresses(ips []string, list any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range ips {
		errs = append(errs, resource.IP(path.Index(i), ip)...)
	}
	if len(errs) > 0 || len(ips) < 2 {
		return errs
	}
	if dual, err := netutils.IsDualStackIPStrings(ips); err != nil || !dual || len(ips) > 2 {
		errs = append(errs, field.Invalid(path, list, "may specify no more than one IP for each IP family"))
	}
	return errs
}
