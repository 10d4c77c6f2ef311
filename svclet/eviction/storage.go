package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

// Reason is the reason in the status and in the event of an evicted pod.
const Reason = "Evicted"

// Violation describes the limit that a pod exceeds.
type Violation struct {
	// Signal is the eviction signal, a label of the evictions metric.
	Signal string
	// Message is the message in the pod's status and event.
	Message string
}

// HasStorageLimit reports whether the pod has a limit that [ExceededStorage]
// checks.
func HasStorageLimit(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if sizeLimit(&pod.Spec.Volumes[i]) > 0 {
			return true
		}
	}
	_, limited := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return limited
}

// ExceededStorage compares the local storage that a pod uses with the size limits
// of its emptyDir volumes, then with the sum of its containers' limits, then with
// the limit of each container and sidecar. It returns nil if the pod exceeds none of them.
//
// separateImageFs means that containers' writable layers are on the image file
// system, not on the node's: then they do not count towards a container's limit.
func ExceededStorage(pod *corev1.Pod, used *statsapi.PodStats, separateImageFs bool) *Violation {
	volumes := map[string]int64{}
	for _, v := range used.VolumeStats {
		volumes[v.Name] = usedBytes(&v.FsStats)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if limit := sizeLimit(v); limit > 0 && volumes[v.Name] > limit {
			return &Violation{"emptydirfs.limit", fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())}
		}
	}
	limit, limited := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	if limited && usedBytes(used.EphemeralStorage) > limit.Value() {
		return &Violation{"ephemeralpodfs.limit", fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())}
	}
	containers := map[string]int64{}
	for i := range used.Containers {
		c := &used.Containers[i]
		containers[c.Name] = usedBytes(c.Logs)
		if !separateImageFs {
			containers[c.Name] += usedBytes(c.Rootfs)
		}
	}
	for at, c := range podspec.NonEphemeral(&pod.Spec) {
		if at.List == podspec.InitContainers && !podspec.IsSidecar(at.List, c) {
			continue
		}
		if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() && containers[c.Name] > limit.Value() {
			return &Violation{"ephemeralcontainerfs.limit", fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())}
		}
	}
	return nil
}

// sizeLimit returns the size limit of an emptyDir volume in bytes, or 0 if it has
// none.
func sizeLimit(v *corev1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// usedBytes returns the bytes in use, or 0 if they were not measured.
func usedBytes(f *statsapi.FsStats) int64 {
	if f == nil {
		return 0
	}
	return int64(ptr.Deref(f.UsedBytes, 0)) //nolint:gosec // no disk overflows int64
}
