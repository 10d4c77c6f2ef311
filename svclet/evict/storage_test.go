package evict

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// pod has two containers and a volume, with these limits; "" is none.
func pod(a, b, volume string) *corev1.Pod {
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

// used is what that pod takes up in bytes: the layer and the logs of a, the
// volume, and all of it.
func used(layer, logs, volume, all uint64) *statsapi.PodStats {
	fs := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n} }
	return &statsapi.PodStats{
		Containers:       []statsapi.ContainerStats{{Name: "a", Rootfs: fs(layer), Logs: fs(logs)}, {Name: "b", Logs: &statsapi.FsStats{}}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "v", FsStats: *fs(volume)}},
		EphemeralStorage: fs(all),
	}
}

func TestAPodThatUsesMoreThanItMayIsEnded(t *testing.T) {
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		used    *statsapi.PodStats
		apart   bool
		bounded bool
		signal  string
		message string
	}{
		{name: "no limits", pod: pod("", "", ""), used: used(1<<40, 1<<40, 1<<40, 1<<42)},
		{name: "a limit of zero is none", pod: pod("", "", "0"), used: used(1<<40, 1<<40, 1<<40, 1<<42)},
		{name: "all at the limits", pod: pod("30", "70", "50"), used: used(20, 10, 50, 100), bounded: true},
		{name: "nothing is known", pod: pod("1", "1", "1"), used: &statsapi.PodStats{}, bounded: true},
		{
			name: "a volume", pod: pod("1Mi", "", "1Ki"), used: used(2<<20, 0, 1025, 3<<20), bounded: true,
			signal: "emptydirfs.limit", message: `Usage of EmptyDir volume "v" exceeds the limit "1Ki". `,
		},
		{
			name: "the pod", pod: pod("1Mi", "1Mi", "1Gi"), used: used(2<<20, 0, 0, 2<<20+1), bounded: true,
			signal: "ephemeralpodfs.limit", message: "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ",
		},
		{
			name: "a container, by its layer and its logs", pod: pod("100", "1Gi", ""), used: used(60, 41, 0, 101), bounded: true,
			signal: "ephemeralcontainerfs.limit", message: `Container a exceeded its local ephemeral storage limit "100". `,
		},
		{name: "a container whose layer lies on another disk", pod: pod("100", "1Gi", ""), used: used(60, 41, 0, 101), apart: true, bounded: true},
		{name: "a container without a limit beside one that has one", pod: pod("", "1Gi", ""), used: used(60, 41, 0, 101), bounded: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Bounded(c.pod); got != c.bounded {
				t.Errorf("bounded: %t", got)
			}
			var signal, message string
			if excess := Storage(c.pod, c.used, c.apart); excess != nil {
				signal, message = excess.Signal, excess.Message
			}
			if signal != c.signal || message != c.message {
				t.Errorf("%s: %q", signal, message)
			}
		})
	}
}
