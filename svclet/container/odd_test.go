package container

import (
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/cgroup"
)

// TestInvalidPodsDoNotPanic uses pods that the API server would refuse: pods of
// files do not pass all of its validation.
func TestInvalidPodsDoNotPanic(t *testing.T) {
	for seed := range int64(300) {
		fill := randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Funcs(
			func(q *resource.Quantity, c randfill.Continue) {
				texts := []string{"0", "1", "-1", "1m", "1500m", "0.0001", "9Ei", "1e30", "123456789123456789", "-9Ei"}
				*q = resource.MustParse(texts[c.Intn(len(texts))])
			},
			func(list *corev1.ResourceList, c randfill.Continue) {
				names := []corev1.ResourceName{"cpu", "memory", "pods", "hugepages-2Mi", "hugepages-", "hugepages-0", "x.example/y", "kubernetes.io/z", ""}
				*list = corev1.ResourceList{}
				for range c.Intn(4) {
					var amount resource.Quantity
					c.Fill(&amount)
					(*list)[names[c.Intn(len(names))]] = amount
				}
			},
			func(*metav1.Time, randfill.Continue) {},
			func(*metav1.FieldsV1, randfill.Continue) {},
		)
		pod, node := &corev1.Pod{}, &corev1.Node{}
		fill.Fill(&pod.ObjectMeta)
		fill.Fill(&pod.Spec)
		fill.Fill(&node.Spec)
		fill.Fill(&node.Status.Allocatable)
		random := rand.New(rand.NewSource(seed)) //nolint:gosec // not a secret
		o := testOptions()
		o.Host.CgroupV2, o.Host.SwapController, o.LimitedSwap = random.Intn(2) == 0, random.Intn(2) == 0, random.Intn(2) == 0
		o.Host.MemoryCapacity *= int64(random.Intn(2))

		// Errors are acceptable; panics are not.
		_, _ = Sandbox(SandboxInput{Options: o, Pod: pod})
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				in := testInput(pod, &containers[i], newFakeObjects())
				in.Options = o
				if random.Intn(2) == 0 {
					in.Objects = nil
				}
				_, _ = Config(t.Context(), in)
			}
		}
		_, _ = HostsFile(o, pod, []string{"10.0.0.1"}, nil)
		other := pod.DeepCopy()
		other.UID = "other"
		if refusal := admit.Admit(pod, []*corev1.Pod{other}, node, admit.Options{}); refusal != nil {
			_, _ = admit.Victims(pod, []*corev1.Pod{other}, refusal.Shortages)
		}
		limits := cgroup.PodLimits(pod, cgroup.CPUQuota{Enforce: true}, 0)
		if limits.Shares == nil || *limits.Shares < 2 || *limits.Shares > 262144 {
			t.Errorf("pod %d has shares that the kernel refuses: %v", seed, limits.Shares)
		}
	}
}
