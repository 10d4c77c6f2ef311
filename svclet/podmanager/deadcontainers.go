package podmanager

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/pod"
)

// deadPeriod is how often the terminated containers of the node are counted: kubelet's
// period of container garbage collection.
const deadPeriod = time.Minute

// limitDeadContainers removes the oldest terminated containers while the node has more
// than the limit, until ctx is done.
func (m *Manager) limitDeadContainers(ctx context.Context) {
	if m.o.MaxDeadContainers < 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.o.Clock.After(deadPeriod):
		}
		m.removeDead(m.o.MaxDeadContainers, m.o.Clock.Now().Add(-m.o.Machine.DeadContainerTTL))
	}
}

// RemoveDead removes all containers of pods that have ended, because the disk fills up, as
// soon as every source has delivered its pods. Those of other pods are kept as usual. This is
// what kubelet's DeleteAllUnusedContainers does. It reports whether there are any.
func (m *Manager) RemoveDead() (removed bool) {
	if !m.isReady() {
		return false
	}
	before := m.o.Clock.Now().Add(-m.o.Machine.DeadContainerTTL)
	for _, w := range m.all() {
		if !w.HasEnded() {
			continue
		}
		if ids := terminated(w.Observed().Containers, before); len(ids) > 0 {
			w.Expend(ids)
			removed = true
		}
	}
	return removed
}

// terminated returns the IDs of the containers that have terminated, of those created before
// a time.
func terminated(containers []pod.Container, before time.Time) map[string]bool {
	ids := map[string]bool{}
	for i := range containers {
		if c := &containers[i]; c.State == pod.Exited && c.CreatedAt.Before(before) {
			ids[c.ID] = true
		}
	}
	return ids
}

// removeDead removes the oldest terminated containers, created before a time, of which the
// node has more than limit.
func (m *Manager) removeDead(limit int, before time.Time) {
	observed := map[types.UID][]pod.Container{}
	for _, w := range m.all() {
		observed[w.Pod().UID] = w.Observed().Containers
	}
	for uid, ids := range superfluous(observed, limit, before) {
		if w := m.get(uid); w != nil {
			w.Expend(ids)
		}
	}
}

// superfluous returns the oldest terminated containers of the pods, by their IDs, that are
// to be removed so that at most limit are left. The newest attempt of each container is
// kept, and so are those created after a time.
func superfluous(observed map[types.UID][]pod.Container, limit int, before time.Time) map[types.UID]map[string]bool {
	type dead struct {
		pod     types.UID
		id      string
		created time.Time
	}
	total, removable := 0, []dead(nil)
	for uid, containers := range observed {
		seen := map[string]bool{} // containers whose newest attempt comes first
		for _, c := range containers {
			isNewest := !seen[c.Name]
			seen[c.Name] = true
			if c.State != pod.Exited {
				continue
			}
			total++
			if !isNewest && c.CreatedAt.Before(before) {
				removable = append(removable, dead{uid, c.ID, c.CreatedAt})
			}
		}
	}
	slices.SortFunc(removable, func(a, b dead) int { return a.created.Compare(b.created) })
	removed := map[types.UID]map[string]bool{}
	for _, d := range removable[:min(len(removable), max(total-limit, 0))] {
		if removed[d.pod] == nil {
			removed[d.pod] = map[string]bool{}
		}
		removed[d.pod][d.id] = true
	}
	return removed
}
