package evict

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// Reason is that of the status and of the event of a pod that is ended.
const Reason = "Evicted"

// Excess is why a pod is ended.
type Excess struct {
	// Signal names the limit in metrics.
	Signal string
	// Message is that of the pod's status.
	Message string
}

// Bounded says whether a pod has a limit that [Storage] looks at.
func Bounded(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limit(&pod.Spec.Volumes[i]) > 0 {
			return true
		}
	}
	_, bounded := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return bounded
}

// Storage compares what a pod takes up of the node's disk with the limits of
// its emptyDir volumes, of all its containers together, and of each container;
// nil if it keeps to them. layersApart says that what containers write into
// their root file systems lies on a disk of the images, and counts for no
// container.
func Storage(pod *corev1.Pod, used *statsapi.PodStats, layersApart bool) *Excess {
	volumes := map[string]int64{}
	for _, v := range used.VolumeStats {
		volumes[v.Name] = bytes(&v.FsStats)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if most := limit(v); most > 0 && volumes[v.Name] > most {
			return &Excess{"emptydirfs.limit", fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())}
		}
	}
	most, bounded := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	if bounded && bytes(used.EphemeralStorage) > most.Value() {
		return &Excess{"ephemeralpodfs.limit", fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", most.String())}
	}
	containers := map[string]int64{}
	for i := range used.Containers {
		c := &used.Containers[i]
		containers[c.Name] = bytes(c.Logs)
		if !layersApart {
			containers[c.Name] += bytes(c.Rootfs)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if most := c.Resources.Limits.StorageEphemeral(); !most.IsZero() && containers[c.Name] > most.Value() {
			return &Excess{"ephemeralcontainerfs.limit", fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, most.String())}
		}
	}
	return nil
}

// limit is that of an emptyDir in bytes, zero where there is none.
func limit(v *corev1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// bytes are those that are taken up, zero where that is not known.
func bytes(f *statsapi.FsStats) int64 {
	if f == nil {
		return 0
	}
	return int64(ptr.Deref(f.UsedBytes, 0)) //nolint:gosec // no disk has more
}
