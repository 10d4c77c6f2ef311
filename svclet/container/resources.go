package container

import (
	"math"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/internal/exponent"
	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/cgroup"
)

// noQuota is the CFS quota of what may use all of its CPUs: they are exclusive.
const noQuota = -1

// Resources returns a container's resource limits and its oom_score_adj, to create
// it or to update it while it runs.
func Resources(o Options, pod *corev1.Pod, container *corev1.Container) *runtimeapi.LinuxContainerResources {
	limits := podspec.ComputeLimits(container.Resources.Limits, podspec.PodLimits(pod))
	var request *resource.Quantity
	if cpu, set := container.Resources.Requests[corev1.ResourceCPU]; set {
		request = &cpu
	}
	resources := linuxResources(o, request, limits.Cpu(), limits.Memory())
	if o.CPUCFSQuota && o.ExclusiveCPUs != nil && o.ExclusiveCPUs.HasExclusiveCPUs(pod.UID, container.Name) {
		resources.CpuQuota = noQuota
	}
	resources.OomScoreAdj = oomScoreAdjust(pod, container, o.Host.MemoryCapacity)
	resources.HugepageLimits = hugepageLimits(o, pod, container)
	setSwap(o, resources, pod, container)
	setMemoryQoS(o, resources, pod, container)
	return resources
}

// linuxResources translates CPU and memory to cgroup units. Without a CPU request,
// the limit is used.
func linuxResources(o Options, request, limit, memory *resource.Quantity) *runtimeapi.LinuxContainerResources {
	if request == nil {
		request = limit
	}
	resources := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(cgroup.Shares(request.MilliValue())),
		MemoryLimitInBytes: memory.Value(),
	}
	if o.CPUCFSQuota {
		period := o.cfsQuotaPeriod()
		resources.CpuPeriod = period.Microseconds()
		resources.CpuQuota = cgroup.Quota(limit.MilliValue(), period)
	}
	if o.Host.CgroupV2 && !o.SingleProcessOOMKill {
		resources.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return resources
}

// SandboxResources returns the pod's overhead, and the sum over its containers, to announce
// a change of them to the runtime.
func SandboxResources(o Options, pod *corev1.Pod) (overheads, sum *runtimeapi.LinuxContainerResources) {
	return overhead(o, pod), sandboxResources(o, pod)
}

// sandboxResources returns the sum over the pod's containers, for runtimes that
// size a virtual machine by it.
func sandboxResources(o Options, pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
	var request *resource.Quantity
	if cpu, set := requests[corev1.ResourceCPU]; set {
		request = &cpu
	}
	resources := linuxResources(o, request, limits.Cpu(), limits.Memory())
	if o.CPUCFSQuota && o.ExclusiveCPUs != nil && o.ExclusiveCPUs.PodHasExclusiveCPUs(pod.UID) {
		resources.CpuQuota = noQuota
	}
	return resources
}

// overhead returns the pod overhead, as both request and limit.
func overhead(o Options, pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if pod.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return linuxResources(o, pod.Spec.Overhead.Cpu(), pod.Spec.Overhead.Cpu(), pod.Spec.Overhead.Memory())
}

// hugepageLimits limits each of the machine's huge page sizes: to the container's
// limit, else its pod's, else to zero.
func hugepageLimits(o Options, pod *corev1.Pod, container *corev1.Container) []*runtimeapi.HugepageLimit {
	wanted := map[string]uint64{}
	collect := func(list corev1.ResourceList) {
		for name, amount := range list {
			size, isHugepage := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if !isHugepage {
				continue
			}
			if bytes, err := exponent.Parse(size); err == nil {
				wanted[hugepageSize(bytes.Value())] = uint64(amount.Value())
			}
		}
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		collect(pod.Spec.Resources.Limits)
	}
	collect(container.Resources.Limits)

	limits := make([]*runtimeapi.HugepageLimit, 0, len(o.Host.HugepageSizes))
	for _, size := range o.Host.HugepageSizes {
		limits = append(limits, &runtimeapi.HugepageLimit{PageSize: size, Limit: wanted[size]})
	}
	return limits
}

// setSwap disables swap for containers, except for burstable ones with
// LimitedSwap, which may swap in proportion to their memory requests (KEP-2400).
func setSwap(o Options, resources *runtimeapi.LinuxContainerResources, pod *corev1.Pod, container *corev1.Container) {
	switch {
	case !o.Host.SwapController:
	case !o.Host.CgroupV2:
		// The limit is for memory and swap together: equal to that of memory, it leaves
		// nothing for swap.
		resources.MemorySwapLimitInBytes = resources.MemoryLimitInBytes
	default:
		if resources.Unified == nil {
			resources.Unified = map[string]string{}
		}
		resources.Unified["memory.swap.max"] = strconv.FormatInt(swapLimit(o, pod, container), 10)
	}
}

// setMemoryQoS protects the memory that a container requests, and throttles a container that
// comes near its limit (KEP-2570).
func setMemoryQoS(o Options, resources *runtimeapi.LinuxContainerResources, pod *corev1.Pod, container *corev1.Container) {
	if !o.Host.CgroupV2 || o.Protection == "" {
		return
	}
	if resources.Unified == nil {
		resources.Unified = map[string]string{}
	}
	request := container.Resources.Requests.Memory().Value()
	for file, bytes := range o.Protection.Of(podspec.QOSClassOf(pod), request) {
		resources.Unified[file] = strconv.FormatInt(bytes, 10)
	}
	if high := throttledAt(o, request, container.Resources.Limits.Memory().Value()); high > 0 {
		resources.Unified[cgroup.MemoryHigh] = strconv.FormatInt(high, 10)
	}
}

// throttledAt returns memory.high of a container, in bytes and whole pages; 0 if it is not
// throttled, as guaranteed containers are not.
func throttledAt(o Options, request, limit int64) int64 {
	if limit == 0 {
		limit = o.Allocatable.Memory().Value()
	}
	page := float64(os.Getpagesize())
	high := int64(math.Floor((float64(request)+float64(limit-request)*o.ThrottlingFactor)/page) * page)
	if limit == 0 || high <= request {
		return 0
	}
	return high
}

func swapLimit(o Options, pod *corev1.Pod, container *corev1.Container) int64 {
	request := container.Resources.Requests.Memory()
	limit := container.Resources.Limits.Memory()
	capacity := o.Host.MemoryCapacity
	if !o.LimitedSwap || admit.Critical(pod) || podspec.QOSClassOf(pod) != corev1.PodQOSBurstable ||
		request.Cmp(*limit) == 0 || capacity <= 0 || request.Value() > capacity {
		return 0
	}
	return int64(float64(request.Value()) / float64(capacity) * float64(o.Host.SwapCapacity))
}
