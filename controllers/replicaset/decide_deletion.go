package replicaset

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/controllers/pods"
)

// difference returns the number of pods to create or to delete now.
func difference(replicas int32, active int) (create, del int) {
	surplus := active - int(replicas)
	return min(max(-surplus, 0), pods.Burst), min(max(surplus, 0), pods.Burst)
}

// podsToDelete returns count of the active pods, in the order in which they are
// deleted. related are the pods of all replica sets with the same controller: a pod
// on a node with more of them is deleted first.
func podsToDelete(active, related []*corev1.Pod, count int, now time.Time) []*corev1.Pod {
	if count >= len(active) {
		return active
	}
	onNode := map[string]int{}
	for _, pod := range related {
		if pods.IsActive(pod) {
			onNode[pod.Spec.NodeName]++
		}
	}
	order := []func(a, b *corev1.Pod) int{
		unassignedFirst,
		pendingFirst,
		notReadyFirst,
		lowerCostFirst,
		func(a, b *corev1.Pod) int { return cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]) },
		func(a, b *corev1.Pod) int { return recentlyReadyFirst(a, b, now) },
		restartedFirst,
		func(a, b *corev1.Pod) int { return youngerFirst(a, b, now) },
	}
	ordered := slices.Clone(active)
	slices.SortStableFunc(ordered, func(a, b *corev1.Pod) int {
		for _, compare := range order {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	})
	return ordered[:count]
}

func unassignedFirst(a, b *corev1.Pod) int {
	return falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != "")
}

func pendingFirst(a, b *corev1.Pod) int {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}
	// Any other phase counts as pending.
	return cmp.Compare(max(slices.Index(phases, a.Status.Phase), 0), max(slices.Index(phases, b.Status.Phase), 0))
}

func notReadyFirst(a, b *corev1.Pod) int { return falseFirst(pods.IsReady(a), pods.IsReady(b)) }

func lowerCostFirst(a, b *corev1.Pod) int { return cmp.Compare(deletionCost(a), deletionCost(b)) }

// deletionCost returns the int32 of the pod-deletion-cost annotation. It is 0 for a
// missing or invalid value.
func deletionCost(pod *corev1.Pod) int64 {
	value := pod.Annotations[corev1.PodDeletionCost]
	if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "0") {
		return 0
	}
	cost, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0
	}
	return cost
}

// recentlyReadyFirst puts the pod first that has been ready for less time, compared
// by order of magnitude.
func recentlyReadyFirst(a, b *corev1.Pod, now time.Time) int {
	if !pods.IsReady(a) || !pods.IsReady(b) {
		return 0
	}
	return laterFirst(a, b, pods.ReadyAt(a), pods.ReadyAt(b), now)
}

func youngerFirst(a, b *corev1.Pod, now time.Time) int {
	return laterFirst(a, b, a.CreationTimestamp.Time, b.CreationTimestamp.Time, now)
}

// laterFirst puts the pod with the later time first. It compares the binary
// logarithms of the ages; within the same one the UIDs decide, which are random:
// an autoscaler may have placed all of the youngest pods on the same node
// (KEP-2185). An unknown time is the latest.
func laterFirst(a, b *corev1.Pod, atA, atB, now time.Time) int {
	switch {
	case atA.Equal(atB):
		return 0
	case atA.IsZero() || atB.IsZero():
		return falseFirst(!atA.IsZero(), !atB.IsZero())
	}
	if c := cmp.Compare(magnitude(now.Sub(atA)), magnitude(now.Sub(atB))); c != 0 {
		return c
	}
	return cmp.Compare(a.UID, b.UID)
}

func magnitude(d time.Duration) int {
	if d <= 0 {
		return -1
	}
	return int(math.Log2(float64(d)))
}

// restartedFirst puts the pod with the most restarts of a container first; the
// restarts of sidecars decide if those are equal.
func restartedFirst(a, b *corev1.Pod) int {
	regularA, sidecarA := restarts(a)
	regularB, sidecarB := restarts(b)
	return cmp.Or(cmp.Compare(regularB, regularA), cmp.Compare(sidecarB, sidecarA))
}

func restarts(pod *corev1.Pod) (regular, sidecar int32) {
	for i := range pod.Status.ContainerStatuses {
		regular = max(regular, pod.Status.ContainerStatuses[i].RestartCount)
	}
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			sidecar = max(sidecar, s.RestartCount)
		}
	}
	return regular, sidecar
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
