package podmanager

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
)

// unallocated is a pod that waits for what others still have alone.
type unallocated struct {
	pod *corev1.Pod
	// leaving are the pods that it waits for. When one of them has ended, or stays after all,
	// the allocation is tried again.
	leaving []types.UID
	// decided gets a rejection, or nil if the pod is admitted.
	decided chan *podworker.Rejection
}

// The event of a pod that waits for what others have alone.
const (
	waitingReason  = "WaitingForResources"
	waitingMessage = "Waiting until pods that were deleted have ended: "
)

// allocate allocates what the pod's containers need alone.
func (m *Manager) allocate(p *corev1.Pod) *admit.Refusal {
	if m.isReady() {
		m.o.Allocations.Retain(append(m.holders(), p))
	}
	return m.o.Allocations.Admit(p)
}

// allocateOrWait allocates what the pod's containers need alone. If it cannot, while pods that are
// removed have not ended, it returns a function that waits until that is decided. kubelet admits
// a pod in the place of one that was deleted without its grace period at once, and both use the
// same CPUs or device until the other one has ended.
func (m *Manager) allocateOrWait(p *corev1.Pod) (wait func(context.Context) *podworker.Rejection, refusal *admit.Refusal) {
	if m.o.Allocations == nil {
		return nil, nil
	}
	if refusal = m.allocate(p); refusal == nil {
		return nil, nil
	}
	leaving := m.leaving()
	if len(leaving) == 0 {
		return nil, refusal
	}
	m.o.Events.Event(p, pod.Event{Type: corev1.EventTypeNormal, Reason: waitingReason, Message: waitingMessage + refusal.Message})
	u := &unallocated{pod: p, leaving: leaving, decided: make(chan *podworker.Rejection, 1)}
	m.unallocated = append(m.unallocated, u)
	return func(ctx context.Context) *podworker.Rejection {
		select {
		case rejection := <-u.decided:
			return rejection
		case <-ctx.Done():
			return nil
		}
	}, nil
}

// leaving returns the pods that have something alone and are going to free it. Before every source
// has delivered its pods, those that none has delivered may be such, and nothing is freed.
func (m *Manager) leaving() []types.UID {
	return slices.DeleteFunc(m.o.Allocations.Pods(), func(uid types.UID) bool {
		if w := m.get(uid); w != nil {
			return stays(w)
		}
		return m.isReady()
	})
}

// stays reports whether a pod keeps what it has alone.
func stays(w *podworker.Worker) bool { return w.MayRun() && !w.IsRemoved() }

// hasLeft reports whether one of the pods that are leaving has freed what it had, or stays.
func (m *Manager) hasLeft(leaving []types.UID) bool {
	return slices.ContainsFunc(leaving, func(uid types.UID) bool {
		w := m.get(uid)
		if w != nil && w.MayRun() {
			return stays(w)
		}
		return m.isReady()
	})
}

// retryAllocations tries the allocations again for which pods wait, those that have waited longest
// first.
func (m *Manager) retryAllocations() {
	m.unallocated = slices.DeleteFunc(m.unallocated, func(u *unallocated) bool {
		if !m.hasLeft(u.leaving) {
			return false
		}
		refusal := m.allocate(u.pod)
		if refusal == nil {
			u.decided <- nil
			return true
		}
		if u.leaving = m.leaving(); len(u.leaving) > 0 {
			return false
		}
		u.decided <- m.reject(u.pod, refusal)
		return true
	})
}

// stopAllocating lets a pod that is to end wait no more.
func (m *Manager) stopAllocating(uid types.UID) {
	m.unallocated = slices.DeleteFunc(m.unallocated, func(u *unallocated) bool {
		if u.pod.UID == uid {
			u.decided <- nil
		}
		return u.pod.UID == uid
	})
}
