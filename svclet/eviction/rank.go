package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
)

// Usage are the statistics of pods by UID.
type Usage map[string]*statsapi.PodStats

// Rank returns the pods that may be evicted to reclaim a resource, the first to be
// evicted first: those without statistics, those that use more than they request, those
// with a lower priority, and those that exceed their requests the most; for processes, the
// priority counts before all. Critical pods are not evicted. Of a disk, only what pods have on it counts.
func Rank(pods []*corev1.Pod, used Usage, starved corev1.ResourceName, disk parts) []*corev1.Pod {
	pods = slices.DeleteFunc(slices.Clone(pods), admit.Critical)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		excessA, knownA := excess(a, used[string(a.UID)], starved, disk)
		excessB, knownB := excess(b, used[string(b.UID)], starved, disk)
		byPriority := cmp.Compare(ptr.Deref(a.Spec.Priority, 0), ptr.Deref(b.Spec.Priority, 0))
		if !knownA || !knownB {
			unknown := first(!knownA, !knownB)
			if starved == resourcePIDs { // kubelet's rankPIDPressure
				return cmp.Or(byPriority, unknown)
			}
			return cmp.Or(unknown, byPriority)
		}
		byExcess := 0
		if starved == corev1.ResourceMemory || starved == corev1.ResourceEphemeralStorage || starved == resourceInodes {
			byExcess = first(excessA > 0, excessB > 0)
		}
		return cmp.Or(byExcess, byPriority, cmp.Compare(excessB, excessA))
	})
	return pods
}

// first orders those before others for which a condition holds.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// excess returns by how much a pod's usage exceeds its request. Inodes and processes
// cannot be requested.
func excess(pod *corev1.Pod, used *statsapi.PodStats, starved corev1.ResourceName, disk parts) (by int64, known bool) {
	if used == nil {
		return 0, false
	}
	amount, known := usage(used, starved, disk)
	return amount - request(pod, starved), known
}

// request returns what a pod requests. The overhead of its runtime class counts only if it
// requests something, so that it does not favor pods which request nothing: kubelet's
// GetResourceRequestQuantity.
func request(pod *corev1.Pod, name corev1.ResourceName) int64 {
	all := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	requested := all[name]
	if overhead, ok := pod.Spec.Overhead[name]; ok && !requested.IsZero() {
		requested.Add(overhead)
	}
	return requested.Value()
}

// usage returns what a pod uses of a resource.
func usage(used *statsapi.PodStats, starved corev1.ResourceName, disk parts) (amount int64, known bool) {
	var measured *uint64
	switch {
	case starved == corev1.ResourceMemory && used.Memory != nil:
		measured = used.Memory.WorkingSetBytes
	case starved == corev1.ResourceEphemeralStorage:
		sum, known := disk.usage(used, bytesUsed)
		return int64(sum), known //nolint:gosec // no disk overflows int64
	case starved == resourceInodes:
		sum, known := disk.usage(used, inodesUsed)
		return int64(sum), known //nolint:gosec // see above
	case starved == resourcePIDs && used.ProcessStats != nil:
		measured = used.ProcessStats.ProcessCount
	}
	return int64(ptr.Deref(measured, 0)), measured != nil //nolint:gosec // no machine overflows int64
}

// The annotations of the event about an eviction: kubelet's.
const (
	offendersAnnotation      = "offending_containers"
	offendersUsageAnnotation = "offending_containers_usage"
	starvedAnnotation        = "starved_resource"
	podAnnotation            = "offending_pod"
	podUsageAnnotation       = "offending_pod_usage"
)

// Message returns the message in the status and in the event of a pod that is evicted
// for a resource, with the containers that use more than they request, and the annotations
// of the event.
func Message(pod *corev1.Pod, used *statsapi.PodStats, s *Starved) (message string, annotations map[string]string) {
	message = fmt.Sprintf("The node was low on resource: %s. Threshold quantity: %s, available: %s. ", s.Resource, s.Quantity.String(), s.Available.String())
	if used == nil {
		return message, nil
	}
	annotations = map[string]string{starvedAnnotation: string(s.Resource)}
	if amount, requested := podUsage(pod, used, s.Resource); amount != nil {
		message += fmt.Sprintf("Pod %s was using %s, request is %s, has larger consumption of %s. ", pod.Name, amount.String(), requested.String(), s.Resource)
		annotations[podAnnotation], annotations[podUsageAnnotation] = pod.Name, amount.String()
	}
	var offenders, amounts []string
	containers := slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers)
	for i := range used.Containers {
		stats := &used.Containers[i]
		at := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == stats.Name })
		amount := containerUsage(stats, s.Resource)
		if at < 0 || amount == nil {
			continue
		}
		if request := containers[at].Resources.Requests[s.Resource]; amount.Cmp(request) > 0 {
			message += fmt.Sprintf("Container %s was using %s, request is %s, has larger consumption of %s. ", stats.Name, amount.String(), request.String(), s.Resource)
			offenders, amounts = append(offenders, stats.Name), append(amounts, amount.String())
		}
	}
	annotations[offendersAnnotation], annotations[offendersUsageAnnotation] = strings.Join(offenders, ","), strings.Join(amounts, ",")
	return message, annotations
}

// podUsage returns the memory that a pod with a request of its own uses, nil for any other.
func podUsage(pod *corev1.Pod, used *statsapi.PodStats, starved corev1.ResourceName) (amount *resource.Quantity, requested resource.Quantity) {
	if starved != corev1.ResourceMemory || pod.Spec.Resources == nil || used.Memory == nil {
		return nil, requested
	}
	requested, ok := pod.Spec.Resources.Requests[starved]
	if !ok {
		return nil, requested
	}
	return resource.NewQuantity(int64(ptr.Deref(used.Memory.WorkingSetBytes, 0)), resource.BinarySI), requested //nolint:gosec // no machine overflows int64
}

// containerUsage returns what a container uses of a resource, nil if it was not
// measured.
func containerUsage(c *statsapi.ContainerStats, starved corev1.ResourceName) *resource.Quantity {
	switch {
	case starved == corev1.ResourceMemory && c.Memory != nil && c.Memory.WorkingSetBytes != nil:
		return resource.NewQuantity(int64(*c.Memory.WorkingSetBytes), resource.BinarySI) //nolint:gosec // no machine overflows int64
	case starved == corev1.ResourceEphemeralStorage && c.Rootfs != nil && c.Rootfs.UsedBytes != nil && c.Logs != nil && c.Logs.UsedBytes != nil:
		return resource.NewQuantity(usedBytes(c.Rootfs)+usedBytes(c.Logs), resource.BinarySI)
	}
	return nil
}
