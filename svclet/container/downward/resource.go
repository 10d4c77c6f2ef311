package downward

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// Resource returns the value of a resourceFieldRef, in units of its divisor,
// rounded up. container is the one with the variable, or nil for a volume, whose
// selector names it. A container without a limit has that of its pod, or else the
// node's allocatable.
func Resource(
	pod *corev1.Pod, container *corev1.Container, selector *corev1.ResourceFieldSelector, allocatable corev1.ResourceList,
) (string, error) {
	if selector.ContainerName != "" || container == nil {
		var err error
		if container, err = find(pod, selector.ContainerName); err != nil {
			return "", err
		}
	}
	kind, name, _ := strings.Cut(selector.Resource, ".")
	resourceName := corev1.ResourceName(name)
	if !known(resourceName) {
		return "", fmt.Errorf("unsupported container resource : %v", selector.Resource)
	}
	switch kind {
	case "limits":
		return inUnits(resourceName, limit(pod, container, resourceName, allocatable), selector.Divisor), nil
	case "requests":
		return inUnits(resourceName, container.Resources.Requests[resourceName], selector.Divisor), nil
	default:
		return "", fmt.Errorf("unsupported container resource : %v", selector.Resource)
	}
}

func find(pod *corev1.Pod, name string) (*corev1.Container, error) {
	if list, c := podspec.Find(&pod.Spec, name); c != nil && list != podspec.EphemeralContainers {
		return c, nil
	}
	return nil, fmt.Errorf("container %s not found", name)
}

func known(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
		return hugepages(name)
	}
}

func hugepages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// limit returns the limit of a container, of its pod, or the node's allocatable.
// Huge pages are never overcommitted, so no limit means none.
func limit(pod *corev1.Pod, container *corev1.Container, name corev1.ResourceName, allocatable corev1.ResourceList) resource.Quantity {
	own := container.Resources.Limits[name]
	if !own.IsZero() || hugepages(name) {
		return own
	}
	node, offered := allocatable[name]
	if !offered {
		return own
	}
	if resourcehelper.IsPodLevelLimitsSet(pod) && resourcehelper.IsSupportedPodLevelResource(name) {
		if ofPod := pod.Spec.Resources.Limits[name]; !ofPod.IsZero() {
			return ofPod
		}
	}
	return node
}

// inUnits divides, rounding up. CPU is in milli-CPU.
func inUnits(name corev1.ResourceName, amount, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	dividend, unit := amount.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		dividend, unit = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(dividend)/float64(unit))), 10)
}
