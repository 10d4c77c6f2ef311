package shutdown

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
)

// systemCritical is the priority from which pods are critical: that of the PriorityClass
// system-cluster-critical.
const systemCritical = 2_000_000_000

// Group is a group of pods that are ended together.
type Group struct {
	// Priority is the lowest priority of its pods.
	Priority int32
	// Grace is the longest time that its pods take.
	Grace time.Duration
}

// Groups returns the groups of a configuration, by their priority; none turns the
// graceful shutdown off.
func Groups(c *config.Configuration) []Group {
	var groups []Group
	if len(c.ShutdownGracePeriodByPodPriority) > 0 {
		for _, g := range c.ShutdownGracePeriodByPodPriority {
			groups = append(groups, Group{g.Priority, time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
		}
		slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
		return groups
	}
	if total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration; total > 0 {
		return []Group{{0, total - critical}, {systemCritical, critical}}
	}
	return nil
}

// Total returns the time that all groups take at most.
func Total(groups []Group) time.Duration {
	var total time.Duration
	for _, g := range groups {
		total += g.Grace
	}
	return total
}

// assign returns the pods of each group. Pods below the lowest priority are in the first
// one.
func assign(groups []Group, pods []*corev1.Pod) [][]*corev1.Pod {
	assigned := make([][]*corev1.Pod, len(groups))
	for _, p := range pods {
		at := 0
		for i, g := range groups {
			if g.Priority <= ptr.Deref(p.Spec.Priority, 0) {
				at = i
			}
		}
		assigned[at] = append(assigned[at], p)
	}
	return assigned
}

// grace returns the grace period of a pod of a group, in seconds: its own if that is
// shorter.
func grace(g Group, p *corev1.Pod) int64 {
	limit := int64(g.Grace / time.Second)
	return min(limit, ptr.Deref(p.Spec.TerminationGracePeriodSeconds, limit))
}
