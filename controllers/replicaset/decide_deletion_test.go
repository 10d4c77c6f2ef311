package replicaset

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// pod returns a pod that runs on a node and has been ready for an hour, with
// changes.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "node-" + name},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
		}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}
func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
func cost(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: value} }
}
func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-d)) }
}
func readyUnknown(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Time{} }
func age(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-d)) }
}
func restarted(count int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: count}} }
}
func sidecarRestarted(count int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", RestartCount: 9 - count}, {Name: "proxy", RestartCount: count}}
	}
}

// In each case the first pod is deleted before the second one, although a later
// rule says the opposite.
func TestOrderOfDeletion(t *testing.T) {
	for _, tt := range []struct {
		rule          string
		first, second *corev1.Pod
	}{
		{"unassigned before assigned", pod("a", on("")), pod("b", phase(corev1.PodPending), unready)},
		{"pending before unknown", pod("a", phase(corev1.PodPending)), pod("b", phase(corev1.PodUnknown), unready)},
		{"unknown before running", pod("a", phase(corev1.PodUnknown)), pod("b", unready)},
		{"not ready before ready", pod("a", unready), pod("b", cost("-10"))},
		{"lower cost before higher cost", pod("a", cost("-10")), pod("b", cost("1"), on("crowded"))},
		{"no cost is zero", pod("b"), pod("a", cost("1"))},
		{"an invalid cost is zero", pod("a", cost("-1")), pod("b", cost("+5"))},
		{"a cost with leading zeros is zero", pod("b", cost("-1")), pod("a", cost("007"))},
		{"a cost beyond 32 bits is zero", pod("b"), pod("a", cost("3000000000"), readyFor(2*time.Hour))},
		{"node with more related pods before node with fewer", pod("a", on("crowded")), pod("b", readyFor(time.Second))},
		{"ready for less time before more", pod("b", readyFor(time.Minute)), pod("a", restarted(4))},
		{"unknown ready time before a known one", pod("b", readyUnknown), pod("a", readyFor(time.Second))},
		{"similar ready times: by UID", pod("a", readyFor(60*time.Minute)), pod("b", readyFor(59*time.Minute), restarted(3))},
		{"more restarts before fewer", pod("b", restarted(2), age(3*time.Hour)), pod("a", restarted(1))},
		{"more restarts of sidecars, if the others are equal", pod("b", sidecarRestarted(2), age(3*time.Hour)), pod("a", sidecarRestarted(1))},
		{"younger before older", pod("b", age(time.Minute)), pod("a")},
		{"similar ages: by UID", pod("a", age(60*time.Minute)), pod("b", age(59*time.Minute))},
	} {
		neighbours := []*corev1.Pod{tt.first, tt.second, pod("n", on("crowded")), pod("m", on("node-b"), phase(corev1.PodFailed))}
		for _, pods := range [][]*corev1.Pod{{tt.first, tt.second}, {tt.second, tt.first}} {
			if got := podsToDelete(pods, neighbours, 1, noon); got[0] != tt.first {
				t.Errorf("%s: %s is deleted first", tt.rule, got[0].Name)
			}
		}
	}
}

func TestPodsToDeleteAreCountDistinctPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var active []*corev1.Pod
		for i := range r.IntN(20) {
			active = append(active, pod(string(rune('a'+i)), on([]string{"", "x", "y"}[r.IntN(3)]), readyFor(time.Duration(r.IntN(5000))*time.Second), restarted(int32(r.IntN(3)))))
		}
		count := r.IntN(len(active) + 1)
		seen := map[types.UID]bool{}
		for _, p := range podsToDelete(active, active, count, noon) {
			seen[p.UID] = true
		}
		if len(seen) != count {
			t.Fatalf("%d distinct pods, want %d of %d", len(seen), count, len(active))
		}
	}
}

func TestDifferenceIsLimitedToABurst(t *testing.T) {
	for _, tt := range []struct {
		replicas    int32
		active      int
		create, del int
	}{
		{3, 3, 0, 0}, {3, 1, 2, 0}, {1, 3, 0, 2}, {0, 0, 0, 0},
		{10_000, 0, pods.Burst, 0}, {0, 10_000, 0, pods.Burst},
	} {
		if create, del := difference(tt.replicas, tt.active); create != tt.create || del != tt.del {
			t.Errorf("%d of %d: create %d, delete %d", tt.active, tt.replicas, create, del)
		}
	}
}
