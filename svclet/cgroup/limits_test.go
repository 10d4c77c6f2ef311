package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func testPod(uid string, containers ...corev1.ResourceRequirements) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: types.UID(uid)}}
	if len(containers) == 0 {
		containers = []corev1.ResourceRequirements{{}}
	}
	for _, resources := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: resources})
	}
	return pod
}

func burstable(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(pairs...)}
}

func guaranteed(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(pairs...), Limits: list(pairs...)}
}

func TestSharesAndQuota(t *testing.T) {
	for _, test := range []struct {
		milliCPU int64
		shares   uint64
		quota    int64
	}{
		{0, 2, 0}, {1, 2, 1000}, {2, 2, 1000}, {10, 10, 1000}, {100, 102, 10000}, {500, 512, 50000},
		{1000, 1024, 100000}, {2500, 2560, 250000}, {1 << 20, 262144, 104857600},
	} {
		if got := Shares(test.milliCPU); got != test.shares {
			t.Errorf("%dm: %d shares, want %d", test.milliCPU, got, test.shares)
		}
		if got := Quota(test.milliCPU, 100*time.Millisecond); got != test.quota {
			t.Errorf("%dm: quota %d, want %d", test.milliCPU, got, test.quota)
		}
	}
	if got := Quota(1500, 5*time.Millisecond); got != 7500 {
		t.Errorf("quota of 1.5 CPUs in 5 ms: %d, want 7500", got)
	}
	for shares, want := range map[uint64]uint64{2: 1, 1024: 39, 262144: 10000, 0: 1, 1 << 30: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight of %d shares: %d, want %d", shares, got, want)
		}
	}
}

func TestPodLimits(t *testing.T) {
	quota := CPUQuota{Enforce: true}
	for _, test := range []struct {
		name    string
		pod     *corev1.Pod
		cpu     CPUQuota
		maxPIDs int64
		want    Limits
	}{
		{name: "a best-effort pod has the least shares", pod: testPod("u"), cpu: quota,
			want: Limits{Shares: ptr.To[uint64](2)}},
		{name: "a burstable pod has shares", pod: testPod("u", burstable("cpu", "250m", "memory", "64Mi")), cpu: quota,
			want: Limits{Shares: ptr.To[uint64](256)}},
		{name: "a guaranteed pod has all limits", pod: testPod("u", guaranteed("cpu", "1", "memory", "64Mi"), guaranteed("cpu", "500m", "memory", "64Mi")), cpu: quota,
			want: Limits{Shares: ptr.To[uint64](1536), Quota: ptr.To[int64](150000), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](128 << 20)}},
		{name: "without quotas, all of the CPU", pod: testPod("u", guaranteed("cpu", "1", "memory", "64Mi")),
			want: Limits{Shares: ptr.To[uint64](1024), Quota: ptr.To[int64](-1), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](64 << 20)}},
		{name: "a pod with exclusive CPUs may use all of the CPU", pod: testPod("u", guaranteed("cpu", "1", "memory", "64Mi")),
			cpu:  CPUQuota{Enforce: true, Exempt: func(uid types.UID) bool { return uid == "u" }},
			want: Limits{Shares: ptr.To[uint64](1024), Quota: ptr.To[int64](-1), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](64 << 20)}},
		{name: "a pod without them has its quota", pod: testPod("other", guaranteed("cpu", "1", "memory", "64Mi")),
			cpu:  CPUQuota{Enforce: true, Exempt: func(uid types.UID) bool { return uid == "u" }},
			want: Limits{Shares: ptr.To[uint64](1024), Quota: ptr.To[int64](100000), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](64 << 20)}},
		{name: "a period of one's own", pod: testPod("u", guaranteed("cpu", "1", "memory", "64Mi")), cpu: CPUQuota{Enforce: true, Period: 10 * time.Millisecond},
			want: Limits{Shares: ptr.To[uint64](1024), Quota: ptr.To[int64](10000), Period: ptr.To[uint64](10000), Memory: ptr.To[int64](64 << 20)}},
		{name: "a limit that one container lacks bounds nothing",
			pod: testPod("u", corev1.ResourceRequirements{Limits: list("memory", "64Mi", "cpu", "1"), Requests: list("cpu", "100m")}, burstable("cpu", "100m")), cpu: quota,
			want: Limits{Shares: ptr.To[uint64](204)}},
		{name: "a limit that all containers have bounds a burstable pod",
			pod: testPod("u", corev1.ResourceRequirements{Limits: list("memory", "64Mi"), Requests: list("memory", "32Mi")}), cpu: quota,
			want: Limits{Shares: ptr.To[uint64](2), Memory: ptr.To[int64](64 << 20)}},
		{name: "the pod's own limits bound it", cpu: quota, pod: func() *corev1.Pod {
			pod := testPod("u", corev1.ResourceRequirements{}, corev1.ResourceRequirements{})
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2", "memory", "1Gi")}
			return pod
		}(), want: Limits{Shares: ptr.To[uint64](1024), Quota: ptr.To[int64](200000), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](1 << 30)}},
		{name: "overhead counts", cpu: quota, pod: func() *corev1.Pod {
			pod := testPod("u", guaranteed("cpu", "1", "memory", "64Mi"))
			pod.Spec.Overhead = list("cpu", "250m", "memory", "16Mi")
			return pod
		}(), want: Limits{Shares: ptr.To[uint64](1280), Quota: ptr.To[int64](125000), Period: ptr.To[uint64](100000), Memory: ptr.To[int64](80 << 20)}},
		{name: "huge pages and processes", pod: testPod("u", corev1.ResourceRequirements{
			Requests: list("hugepages-2Mi", "4Mi", "cpu", "1"), Limits: list("hugepages-2Mi", "4Mi")}), cpu: quota, maxPIDs: 100,
			want: Limits{Shares: ptr.To[uint64](1024), PIDs: ptr.To[int64](100), Hugepages: map[int64]int64{2 << 20: 4 << 20}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Hugepages == nil {
				test.want.Hugepages = map[int64]int64{}
			}
			if diff := cmp.Diff(test.want, PodLimits(test.pod, test.cpu, test.maxPIDs)); diff != "" {
				t.Error("limits (-want +got):\n" + diff)
			}
		})
	}
}

func TestLargerLimitsAreThoseOfEither(t *testing.T) {
	limits := func(cpu, memory string) Limits {
		return PodLimits(testPod("u", guaranteed("cpu", cpu, "memory", memory)), CPUQuota{Enforce: true}, 0)
	}
	for _, test := range []struct{ a, b, want Limits }{
		{limits("2", "100Mi"), limits("1", "200Mi"), limits("2", "200Mi")},
		{limits("1", "200Mi"), limits("2", "100Mi"), limits("2", "200Mi")},
		{Limits{Memory: ptr.To[int64](1)}, Limits{}, Limits{}},
		{Limits{Quota: ptr.To[int64](1), Period: ptr.To[uint64](2)}, Limits{Quota: ptr.To[int64](-1)}, Limits{Quota: ptr.To[int64](-1), Period: ptr.To[uint64](2)}},
		{Limits{Quota: ptr.To[int64](-1)}, Limits{Quota: ptr.To[int64](1)}, Limits{Quota: ptr.To[int64](-1)}},
	} {
		if diff := cmp.Diff(test.want, Larger(test.a, test.b)); diff != "" {
			t.Error(diff)
		}
	}
}
