package cgroup

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/internal/exponent"
)

// PIDs is the resource name of process IDs in reservations and in the capacity
// used here; the API does not have it.
const PIDs corev1.ResourceName = "pid"

// Limits are the limits of a cgroup; nil leaves a value unchanged.
type Limits struct {
	// Shares are cgroup v1's; v2's weight is computed from them.
	Shares *uint64
	// Quota is the CPU time per Period, in microseconds; -1 for no limit.
	Quota  *int64
	Period *uint64
	// Memory is in bytes (-1 for no limit), PIDs a number of processes.
	Memory, PIDs *int64
	// Hugepages are bytes by page size in bytes. Sizes that are not in the map are
	// limited to 0.
	Hugepages map[int64]int64
	// Protected are the values of memory.min and memory.low, in bytes (cgroup v2).
	Protected map[string]int64
	// CPUs is a list of CPUs ("0-3").
	CPUs string
}

// CPUQuota configures the enforcement of CPU limits.
type CPUQuota struct {
	// Enforce is --cpu-cfs-quota.
	Enforce bool
	// Period is the period of the quota, by default 100 ms.
	Period time.Duration
	// Exempt reports whether the quota does not limit a pod: one that has exclusive CPUs.
	// Nil exempts none.
	Exempt func(pod types.UID) bool
}

const defaultPeriod = 100 * time.Millisecond

// limits reports whether the quota limits a pod.
func (q CPUQuota) limits(pod *corev1.Pod) bool {
	return q.Enforce && (q.Exempt == nil || !q.Exempt(pod.UID))
}

func (q CPUQuota) period() time.Duration {
	if q.Period == 0 {
		return defaultPeriod
	}
	return q.Period
}

// PodLimits returns the limits of a pod's cgroup: its requests as shares, and
// limits if all of its containers, or the pod itself, have them.
func PodLimits(pod *corev1.Pod, cpu CPUQuota, maxPIDs int64) Limits {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})

	shares := Shares(requests.Cpu().MilliValue())
	quota, period := Quota(limits.Cpu().MilliValue(), cpu.period()), uint64(cpu.period().Microseconds())
	if !cpu.limits(pod) {
		quota = -1
	}
	memory := limits.Memory().Value()

	result := Limits{Hugepages: hugepages(requests)}
	switch podspec.QOSClassOf(pod) {
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

// Larger returns the larger limits of CPU and memory of a and b; the others are those
// of a. Without a limit in one of them there is none.
func Larger(a, b Limits) Limits {
	larger := func(a, b *int64) *int64 {
		switch {
		case a == nil || b == nil || *a < 0:
			return a
		case *b < 0 || *b > *a:
			return b
		default:
			return a
		}
	}
	if a.Shares != nil && b.Shares != nil && *b.Shares > *a.Shares {
		a.Shares = b.Shares
	}
	if b.Quota == nil {
		a.Quota, a.Period = nil, nil // as it is: without a limit
	}
	if b.Memory == nil {
		a.Memory = nil
	}
	a.Quota, a.Memory = larger(a.Quota, b.Quota), larger(a.Memory, b.Memory)
	return a
}

// limited reports whether a pod as a whole has a limit of a resource: it has none
// if one of its containers has none. (kubelet 1.36 uses the limits of the
// containers before it for a sidecar without a limit.)
func limited(pod *corev1.Pod, resource corev1.ResourceName) bool {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		if limit := pod.Spec.Resources.Limits[resource]; !limit.IsZero() {
			return true
		}
	}
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		if limit := c.Resources.Limits[resource]; limit.IsZero() {
			return false
		}
	}
	return true
}

// resourceLimits returns limits for a resource list: allocatable for all pods, or
// a reservation for a reserved cgroup. compressible limits CPU only.
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

// hugepages returns the huge pages of a resource list by their size.
func hugepages(resources corev1.ResourceList) map[int64]int64 {
	limits := map[int64]int64{}
	for name, amount := range resources {
		text, isHugepage := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !isHugepage {
			continue
		}
		size, err := exponent.Parse(text)
		if err != nil || size.Value() <= 0 {
			continue
		}
		limits[size.Value()] = min(limits[size.Value()]+amount.Value(), math.MaxInt64)
	}
	return limits
}
