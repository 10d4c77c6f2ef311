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

// Victims are the count of the pods that are deleted first when there are too
// many. related are those whose company on a node counts: the pods of all
// replica sets with the same controller.
func Victims(active, related []*corev1.Pod, count int, now time.Time) []*corev1.Pod {
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
		earlierPhaseFirst,
		unreadyFirst,
		cheapFirst,
		func(a, b *corev1.Pod) int { return cmp.Compare(onNode[b.Spec.NodeName], onNode[a.Spec.NodeName]) },
		func(a, b *corev1.Pod) int { return shortlyReadyFirst(a, b, now) },
		restartedFirst,
		func(a, b *corev1.Pod) int { return youngerFirst(a, b, now) },
	}
	victims := slices.Clone(active)
	slices.SortStableFunc(victims, func(a, b *corev1.Pod) int {
		for _, compare := range order {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	})
	return victims[:count]
}

func unassignedFirst(a, b *corev1.Pod) int {
	return falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != "")
}

func earlierPhaseFirst(a, b *corev1.Pod) int {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}
	// Any other one counts as pending.
	return cmp.Compare(max(slices.Index(phases, a.Status.Phase), 0), max(slices.Index(phases, b.Status.Phase), 0))
}

func unreadyFirst(a, b *corev1.Pod) int { return falseFirst(pods.IsReady(a), pods.IsReady(b)) }

func cheapFirst(a, b *corev1.Pod) int { return cmp.Compare(deletionCost(a), deletionCost(b)) }

// deletionCost is what the annotation says that the deletion costs compared with
// that of other pods: an int32. Anything else in it is 0, as without it.
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

// shortlyReadyFirst takes the pod that has been ready for less time, in orders
// of magnitude, or of those of the same order any.
func shortlyReadyFirst(a, b *corev1.Pod, now time.Time) int {
	if !pods.IsReady(a) || !pods.IsReady(b) {
		return 0
	}
	return laterFirst(a, b, pods.ReadyAt(a), pods.ReadyAt(b), now)
}

func youngerFirst(a, b *corev1.Pod, now time.Time) int {
	return laterFirst(a, b, a.CreationTimestamp.Time, b.CreationTimestamp.Time, now)
}

// laterFirst compares times by how long ago they are, roughly: as powers of two.
// Within one power the UIDs decide, which is as good as chance, so that not all
// the youngest pods go, which an autoscaler may have placed on the same node.
// An unknown time is the latest. (KEP-2185)
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

// restartedFirst takes the pod one of whose containers has restarted more often
// than any of the other pod's; sidecars count if the others are equal.
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
