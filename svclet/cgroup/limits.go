package cgroup

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubectl/pkg/util/qos"

	"svc.dev/svc/svclet/podspec"
)

// PIDs is the resource of process numbers, in reservations and in the node's
// inner capacity; the API does not show it.
const PIDs corev1.ResourceName = "pid"

// Limits are what a cgroup is held to; nil leaves a value as it is.
type Limits struct {
	// Shares are cgroup v1's; v2's weight follows from them.
	Shares *uint64
	// Quota is how many microseconds of each Period may be used; -1 for all.
	Quota  *int64
	Period *uint64
	// Memory is in bytes (-1 for all), PIDs a number of processes.
	Memory, PIDs *int64
	// Hugepages are bytes by the size of a page in bytes. Sizes that are not
	// among them are forbidden.
	Hugepages map[int64]int64
	// CPUs is a list of CPUs ("0-3").
	CPUs string
}

// CPUQuota says how CPU limits are enforced.
type CPUQuota struct {
	// Enforce is --cpu-cfs-quota.
	Enforce bool
	// Period is that of the quota. Default: 100 ms.
	Period time.Duration
}

const defaultPeriod = 100 * time.Millisecond

func (q CPUQuota) period() time.Duration {
	if q.Period == 0 {
		return defaultPeriod
	}
	return q.Period
}

// PodLimits are those of a pod's cgroup: its requests as shares, and limits
// where all of its containers, or the pod itself, have them.
func PodLimits(pod *corev1.Pod, cpu CPUQuota, maxPIDs int64) Limits {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})

	shares := Shares(requests.Cpu().MilliValue())
	quota, period := Quota(limits.Cpu().MilliValue(), cpu.period()), uint64(cpu.period().Microseconds())
	if !cpu.Enforce {
		quota = -1
	}
	memory := limits.Memory().Value()

	result := Limits{Hugepages: hugepages(requests)}
	switch qos.GetPodQOS(pod) {
	case corev1.PodQOSGuaranteed:
		result.Shares, result.Quota, result.Period, result.Memory = &shares, &quota, &period, &memory
	case corev1.PodQOSBurstable:
		result.Shares = &shares
		if limited(pod, corev1.ResourceCPU) {
			result.Quota, result.Period = &quota, &period
		}
		if limited(pod, corev1.ResourceMemory) {
			result.Memory = &memory
		}
	default:
		least := uint64(minShares)
		result.Shares = &least
	}
	if maxPIDs > 0 {
		result.PIDs = &maxPIDs
	}
	return result
}

// limited says whether a pod as a whole has a limit of a resource: one without
// a limit among its containers has none. (kubelet of 1.36 takes a sidecar
// without a limit for one with the limits of those before it.)
func limited(pod *corev1.Pod, resource corev1.ResourceName) bool {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		if limit := pod.Spec.Resources.Limits[resource]; !limit.IsZero() {
			return true
		}
	}
	for _, c := range podspec.Lasting(&pod.Spec) {
		if limit := c.Resources.Limits[resource]; limit.IsZero() {
			return false
		}
	}
	return true
}

// resourceLimits hold a cgroup to a list of resources: all pods to what is
// allocatable, or a reserved cgroup to its reservation. compressible leaves all
// but CPU unbounded.
func resourceLimits(resources corev1.ResourceList, compressible bool) Limits {
	var limits Limits
	if cpu, set := resources[corev1.ResourceCPU]; set {
		shares := Shares(cpu.MilliValue())
		limits.Shares = &shares
	}
	if compressible {
		return limits
	}
	if memory, set := resources[corev1.ResourceMemory]; set {
		bytes := memory.Value()
		limits.Memory = &bytes
	}
	if pids, set := resources[PIDs]; set {
		number := pids.Value()
		limits.PIDs = &number
	}
	limits.Hugepages = hugepages(resources)
	return limits
}

// hugepages are a list's huge pages, by their size.
func hugepages(resources corev1.ResourceList) map[int64]int64 {
	limits := map[int64]int64{}
	for name, amount := range resources {
		text, isHugepage := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !isHugepage {
			continue
		}
		size, err := resource.ParseQuantity(text)
		if err != nil || size.Value() <= 0 {
			continue
		}
		limits[size.Value()] = min(limits[size.Value()]+amount.Value(), math.MaxInt64)
	}
	return limits
}
