package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// ephemeralContainers adds containers to a running pod, for debugging.
var ephemeralContainers = resource.View[*corev1.Pod]{
	Name:     "ephemeralcontainers",
	Prepare:  keepAllButEphemeralContainers,
	Validate: validateEphemeralContainersUpdate,
	Resets:   podPathsExcept("ephemeralContainers"),
}

// resize changes the cpu and memory of a running pod.
var resize = resource.View[*corev1.Pod]{
	Name:     "resize",
	Prepare:  keepAllButResources,
	Validate: validateResize,
	Resets:   podPathsExcept("containers", "initContainers", "resources"),
}

// podPathsExcept returns the paths of the pod's status and of the fields of its
// spec other than these.
func podPathsExcept(fields ...string) []string {
	paths := []string{"status"}
	spec := reflect.TypeFor[corev1.PodSpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if !slices.Contains(fields, name) {
			paths = append(paths, "spec."+name)
		}
	}
	return paths
}

func keepAllButEphemeralContainers(_ *resource.Env, p, old *corev1.Pod) {
	added := p.Spec.EphemeralContainers
	p.Spec, p.Status = old.Spec, old.Status
	p.Spec.EphemeralContainers = added
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

// validateEphemeralContainersUpdate allows ephemeral containers to be added, and
// none to be removed or changed.
func validateEphemeralContainersUpdate(p, old *corev1.Pod) field.ErrorList {
	if podspec.IsMirror(old.Annotations) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := validatePod(p)
	path := field.NewPath("spec", "ephemeralContainers")
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		at := slices.IndexFunc(p.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == was.Name })
		switch {
		case at < 0:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		case !apiequality.Semantic.DeepEqual(*was, p.Spec.EphemeralContainers[at]):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", was.Name, diff.Diff(*was, p.Spec.EphemeralContainers[at]))))
		}
	}
	return errs
}

// keepAllButResources copies from old all but the resources, and completes those of the pod
// level. A changed list of containers stays, for validation to reject.
func keepAllButResources(env *resource.Env, p, old *corev1.Pod) {
	spec := p.Spec
	p.Status = old.Status
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
	if containersChanged(&spec, &old.Spec, nil) != nil {
		return
	}
	p.Spec = *old.Spec.DeepCopy()
	takeResources(p.Spec.Containers, spec.Containers)
	takeResources(p.Spec.InitContainers, spec.InitContainers)
	if env.ResizePodResources {
		p.Spec.Resources = spec.Resources
	}
	if env.PodResources {
		keepPodResources(p, old)
		completePodResources(p)
	}
}

func takeResources(to, from []corev1.Container) {
	for i := range to {
		to[i].Resources, to[i].ResizePolicy = from[i].Resources, from[i].ResizePolicy
	}
}

// containersChanged returns errors if containers are added, removed, moved or
// renamed.
func containersChanged(spec, old *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		kind     podspec.List
		now, was []corev1.Container
	}{{podspec.Containers, spec.Containers, old.Containers}, {podspec.InitContainers, spec.InitContainers, old.InitContainers}} {
		path := path.Child(string(list.kind))
		if len(list.now) != len(list.was) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("%s may not be added or removed on resize", list.kind)))
			continue
		}
		for i := range list.now {
			if list.now[i].Name != list.was[i].Name {
				errs = append(errs, field.Forbidden(path.Index(i).Child("name"), fmt.Sprintf("%s may not be renamed or reordered on resize", list.kind)))
			}
		}
	}
	return errs
}

func validateResize(p, old *corev1.Pod) field.ErrorList {
	switch {
	case podspec.IsMirror(old.Annotations):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	path := field.NewPath("spec")
	errs := validatePod(p)
	if podspec.QOSClass(&p.Spec) != podspec.QOSClass(&old.Spec) {
		errs = append(errs, field.Invalid(path, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if !nodeCanResize(old) {
		errs = append(errs, field.Forbidden(path, "Pod running on node without support for resize"))
	}
	if len(old.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		errs = append(errs, field.Forbidden(path, "pods with node allocatable resource claims cannot be resized"))
	}
	errs = append(errs, validatePodLevelResize(p, old, path)...)
	if changed := containersChanged(&p.Spec, &old.Spec, path); changed != nil {
		return append(errs, changed...)
	}
	for i := range p.Spec.InitContainers {
		c, was, path := &p.Spec.InitContainers[i], &old.Spec.InitContainers[i], path.Child("initContainers").Index(i)
		errs = append(errs, resourcesStay(&c.Resources, &was.Resources, path.Child("resources"))...)
		if !onlyComputeChanged(c, was) {
			errs = append(errs, field.Forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable"))
		}
		if !podspec.IsSidecar(podspec.InitContainers, c) && restartsToResize(c) && !apiequality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(path, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	for i := range p.Spec.Containers {
		c, was := &p.Spec.Containers[i], &old.Spec.Containers[i]
		errs = append(errs, resourcesStay(&c.Resources, &was.Resources, path.Child("containers").Index(i).Child("resources"))...)
		if !onlyComputeChanged(c, was) {
			errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable"))
		}
	}
	return errs
}

// restartsToResize reports whether a resource demands a restart of the container.
func restartsToResize(c *corev1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
}

// nodeCanResize reports whether the node supports resize: then it reports the
// resources of running containers.
func nodeCanResize(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

func validatePodLevelResize(p, old *corev1.Pod, path *field.Path) field.ErrorList {
	now, was := p.Spec.Resources, old.Spec.Resources
	if now == nil && was == nil {
		return nil
	}
	if now == nil {
		return field.ErrorList{field.Forbidden(path.Child("resources"), "pod-level resources cannot be removed")}
	}
	if was == nil {
		was = &corev1.ResourceRequirements{}
	}
	var errs field.ErrorList
	if removes(now.Requests, was.Requests) {
		errs = append(errs, field.Forbidden(path.Child("resources", "requests"), "pod-level resource requests cannot be removed"))
	}
	if removes(now.Limits, was.Limits) {
		errs = append(errs, field.Forbidden(path.Child("resources", "limits"), "pod-level resource limits cannot be removed"))
	}
	if !apiequality.Semantic.DeepEqual(withoutCompute(*now), withoutCompute(*was)) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable at pod-level"))
	}
	return errs
}

func resourcesStay(now, was *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if removes(now.Requests, was.Requests) {
		errs = append(errs, field.Forbidden(path.Child("requests"), "resource requests cannot be removed"))
	}
	if removes(now.Limits, was.Limits) {
		errs = append(errs, field.Forbidden(path.Child("limits"), "resource limits cannot be removed"))
	}
	return errs
}

// removes reports whether a resource of was is not in now.
func removes(now, was corev1.ResourceList) bool {
	for name := range was {
		if _, ok := now[name]; !ok {
			return true
		}
	}
	return false
}

// onlyComputeChanged reports whether two containers are equal except for cpu and
// memory.
func onlyComputeChanged(now, was *corev1.Container) bool {
	a, b := *now, *was
	a.Resources, b.Resources = withoutCompute(a.Resources), withoutCompute(b.Resources)
	return apiequality.Semantic.DeepEqual(a, b)
}

func withoutCompute(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	strip := func(list corev1.ResourceList) corev1.ResourceList {
		rest := corev1.ResourceList{}
		for name, amount := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				rest[name] = amount
			}
		}
		return rest
	}
	r.Limits, r.Requests = strip(r.Limits), strip(r.Requests)
	return r
}
