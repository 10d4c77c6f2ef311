package decision

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// resources are amounts, in thousandths of a CPU, bytes, and pieces.
type resources struct {
	cpu, memory, storage int64
	// others are extended resources, huge pages and the like; nil if there are none.
	others map[corev1.ResourceName]int64
}

func newResources(list corev1.ResourceList) resources {
	var r resources
	for name, quantity := range list {
		switch {
		case name == corev1.ResourceCPU:
			r.cpu = quantity.MilliValue()
		case name == corev1.ResourceMemory:
			r.memory = quantity.Value()
		case name == corev1.ResourceEphemeralStorage:
			r.storage = quantity.Value()
		case countedByName(name):
			if r.others == nil {
				r.others = map[corev1.ResourceName]int64{}
			}
			r.others[name] = quantity.Value()
		}
	}
	return r
}

// countedByName reports whether a resource is one of those that nodes advertise
// under any name: extended resources (example.com/gpu), huge pages, volumes.
func countedByName(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
}

// add adds by times sign, which is 1 or -1. It removes amounts that become 0.
func (r *resources) add(by *resources, sign int64) {
	r.cpu += sign * by.cpu
	r.memory += sign * by.memory
	r.storage += sign * by.storage
	for name, amount := range by.others {
		if r.others == nil {
			r.others = map[corev1.ResourceName]int64{}
		}
		if r.others[name] += sign * amount; r.others[name] == 0 {
			delete(r.others, name)
		}
	}
}

// lessThanIn reports whether r is less than other in any resource.
func (r *resources) lessThanIn(other *resources) bool {
	if r.cpu < other.cpu || r.memory < other.memory || r.storage < other.storage {
		return true
	}
	for name, amount := range other.others {
		if r.others[name] < amount {
			return true
		}
	}
	return false
}

// requirements are the resources that a pod uses.
type requirements struct {
	resources
	// scoredCPU and scoredMemory are used for scores: a container without requests
	// counts with a default.
	scoredCPU, scoredMemory int64
}

func (r *requirements) equal(other *requirements) bool {
	return r.cpu == other.cpu && r.memory == other.memory && r.storage == other.storage && maps.Equal(r.others, other.others) &&
		r.scoredCPU == other.scoredCPU && r.scoredMemory == other.scoredMemory
}

// The requests in scores of a container without requests.
const (
	unrequestedCPU    = 100               // thousandths
	unrequestedMemory = 200 * 1024 * 1024 // bytes
)

// newRequirements adds up the requests of a pod: containers, sidecars and the largest
// init container (KEP-753), pod-level resources (KEP-2837), overhead (KEP-688), and
// the allocated resources during an in-place resize (KEP-1287).
func newRequirements(pod *corev1.Pod) requirements {
	if r, ok := sumOfContainers(pod); ok {
		return r
	}
	options := resourcehelper.PodResourcesOptions{
		UseStatusResources: pod.Spec.NodeName != "",
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}
	list := resourcehelper.PodRequests(pod, options)
	r := requirements{resources: newResources(list)}
	r.scoredCPU, r.scoredMemory = r.cpu, r.memory
	if everyContainerRequests(pod) {
		return r
	}
	options.NonMissingContainerRequests = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(unrequestedCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(unrequestedMemory, resource.BinarySI),
	}
	list = resourcehelper.PodRequests(pod, options)
	r.scoredCPU, r.scoredMemory = list.Cpu().MilliValue(), list.Memory().Value()
	return r
}

// sumOfContainers is a fast path for pods that have containers only, as most do.
func sumOfContainers(pod *corev1.Pod) (requirements, bool) {
	spec := &pod.Spec
	if len(spec.InitContainers) > 0 || spec.Resources != nil || len(spec.Overhead) > 0 || pod.Status.Resources != nil {
		return requirements{}, false
	}
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Resources != nil || len(status.AllocatedResources) > 0 {
			return requirements{}, false
		}
	}
	var sum requirements
	for i := range spec.Containers {
		list := spec.Containers[i].Resources.Requests
		requests := newResources(list)
		sum.add(&requests, 1)
		cpu, memory := requests.cpu, requests.memory
		if _, ok := list[corev1.ResourceCPU]; !ok {
			cpu = unrequestedCPU
		}
		if _, ok := list[corev1.ResourceMemory]; !ok {
			memory = unrequestedMemory
		}
		sum.scoredCPU += cpu
		sum.scoredMemory += memory
	}
	return sum, true
}

// everyContainerRequests reports whether all containers request CPU and memory.
func everyContainerRequests(pod *corev1.Pod) bool {
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		_, cpu := c.Resources.Requests[corev1.ResourceCPU]
		_, memory := c.Resources.Requests[corev1.ResourceMemory]
		if !cpu || !memory {
			return false
		}
	}
	return true
}
