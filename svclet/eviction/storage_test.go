package eviction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// limited returns a pod of two containers and a volume with the given limits; ""
// means no limit.
func limited(a, b, volume string) *corev1.Pod {
	limits := func(amount string) corev1.ResourceRequirements {
		if amount == "" {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(amount)}}
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Resources: limits(a)}, {Name: "b", Resources: limits(b)}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "other"}},
	}}
	if volume != "" {
		p.Spec.Volumes[0].EmptyDir.SizeLimit = ptr.To(resource.MustParse(volume))
	}
	return p
}

// withInit makes the first container of a pod an init container.
func withInit(p *corev1.Pod, restart *corev1.ContainerRestartPolicy) *corev1.Pod {
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[:1:1], p.Spec.Containers[1:]
	p.Spec.InitContainers[0].RestartPolicy = restart
	return p
}

// used returns what that pod uses, in bytes: the writable layer and the logs of
// container a, the volume, and the pod's total.
func used(layer, logs, volume, all uint64) *statsapi.PodStats {
	fs := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n} }
	return &statsapi.PodStats{
		Containers:       []statsapi.ContainerStats{{Name: "a", Rootfs: fs(layer), Logs: fs(logs)}, {Name: "b", Logs: &statsapi.FsStats{}}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: *fs(volume)}},
		EphemeralStorage: fs(all),
	}
}

func TestAPodThatExceedsAStorageLimitIsEvicted(t *testing.T) {
	for _, c := range []struct {
		name     string
		pod      *corev1.Pod
		used     *statsapi.PodStats
		separate bool
		limited  bool
		signal   string
		message  string
	}{
		{name: "no limits", pod: limited("", "", ""), used: used(1<<40, 1<<40, 1<<40, 1<<42)},
		{name: "a limit of zero means no limit", pod: limited("", "", "0"), used: used(1<<40, 1<<40, 1<<40, 1<<42)},
		{name: "usage equal to the limits", pod: limited("30", "70", "50"), used: used(20, 10, 50, 100), limited: true},
		{name: "usage was not measured", pod: limited("1", "1", "1"), used: &statsapi.PodStats{}, limited: true},
		{
			name: "a volume", pod: limited("1Mi", "", "1Ki"), used: used(2<<20, 0, 1025, 3<<20), limited: true,
			signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `,
		},
		{
			name: "the pod", pod: limited("1Mi", "1Mi", "1Gi"), used: used(2<<20, 0, 0, 2<<20+1), limited: true,
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
		},
		{
			name: "a container, by its writable layer and its logs", pod: limited("100", "1Gi", ""), used: used(60, 41, 0, 101), limited: true,
			signal: "ephemeralcontainerfs.limit", message: `Container a exceeded its local ephemeral storage limit "100". `,
		},
		{name: "a container whose writable layer is on the image file system", pod: limited("100", "1Gi", ""), used: used(60, 41, 0, 101), separate: true, limited: true},
		{
			name: "a sidecar", pod: withInit(limited("100", "1Gi", ""), ptr.To(corev1.ContainerRestartPolicyAlways)), used: used(60, 41, 0, 101), limited: true,
			signal: "ephemeralcontainerfs.limit", message: `Container a exceeded its local ephemeral storage limit "100". `,
		},
		{name: "an init container that ends before the others start", pod: withInit(limited("100", "1Gi", ""), nil), used: used(60, 41, 0, 101), limited: true},
		{name: "a container without a limit beside one with a limit", pod: limited("", "1Gi", ""), used: used(60, 41, 0, 101), limited: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := HasStorageLimit(c.pod); got != c.limited {
				t.Errorf("limited: %t", got)
			}
			var signal, message string
			if violation := ExceededStorage(c.pod, c.used, c.separate); violation != nil {
				signal, message = violation.Signal, violation.Message
			}
			if signal != c.signal || message != c.message {
				t.Errorf("%s: %q", signal, message)
			}
		})
	}
}
