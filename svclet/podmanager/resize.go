package podmanager

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
	"svc.dev/svc/svclet/resize"
)

// Resizes are how pods change in place. The zero value means that they do not.
type Resizes struct {
	// Allocations are what the node has allocated; nil if pods do not change in place.
	Allocations *resize.Allocations
	Options     admit.ResizeOptions
}

// pendingResize is a pod that asks for other resources than it has.
type pendingResize struct {
	pod     *corev1.Pod // as its source has it
	pending pod.PendingResize
	// turn orders pods of the same priority.
	turn int
}

// resizes belong to the event loop.
type resizes struct {
	pending map[types.UID]pendingResize
	turn    int
}

// useAllocation lets a pod that is new to the agent start with what an earlier agent has
// allocated to it.
func (m *Manager) useAllocation(s *podworker.Start) {
	if m.o.Resizes.Allocations == nil {
		return
	}
	var resized bool
	s.Pod, resized = m.o.Resizes.Allocations.Of(s.Pod)
	s.Machine.Resized = resized && s.Adopted
}

// saveAllocation allocates what a pod asks for that has been admitted.
func (m *Manager) saveAllocation(ctx context.Context, p *corev1.Pod) {
	if m.o.Resizes.Allocations == nil || podspec.IsTerminal(p.Status.Phase) {
		return
	}
	if err := m.o.Resizes.Allocations.Set(p); err != nil {
		// The next change of a pod writes it again.
		klog.FromContext(ctx).Error(err, "Failed to save the allocation of pod", "pod", klog.KObj(p))
	}
}

// update passes a pod's object on to its worker, with the resources that have been
// allocated to it. Others are allocated if the node can.
func (m *Manager) update(ctx context.Context, w *podworker.Worker, p *corev1.Pod) {
	if m.o.Resizes.Allocations == nil {
		w.Update(p)
		return
	}
	has, _ := m.o.Resizes.Allocations.Of(p)
	known, wasPending := m.resizes.pending[p.UID]
	if has == p || p.DeletionTimestamp != nil || !w.IsActive() {
		delete(m.resizes.pending, p.UID)
		if wasPending {
			w.Pend(nil)
		}
		w.Update(has)
		return
	}
	refusal := m.allocateResize(ctx, p, has)
	if refusal == nil {
		delete(m.resizes.pending, p.UID)
		w.Pend(nil)
		w.Update(p)
		w.Refresh() // volumes may show the resources
		return
	}
	next := pod.PendingResize{Reason: refusal.Reason, Message: refusal.Message}
	if !wasPending {
		m.resizes.turn++
		known.turn = m.resizes.turn
	}
	if !wasPending || known.pending != next {
		m.o.Events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: "Resize" + next.Reason, Message: next.Message})
	}
	known.pod, known.pending = p, next
	m.resizes.pending[p.UID] = known
	w.Pend(&next)
	w.Update(has)
}

// allocateResize allocates what a pod asks for in place of what it has, or returns why the node
// does not.
func (m *Manager) allocateResize(ctx context.Context, p, has *corev1.Pod) *admit.Refusal {
	if refusal := admit.Resize(p, has, m.present(), m.o.Node.Object(), m.o.Resizes.Options); refusal != nil {
		return refusal
	}
	if err := m.o.Resizes.Allocations.Set(p); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to save the allocation of pod, will retry", "pod", klog.KObj(p))
		return &admit.Refusal{Reason: corev1.PodReasonDeferred, Message: err.Error()}
	}
	return nil
}

// retryResizes tries those resizes again for which there was not enough: pods of a
// higher priority first, then those that have waited longer.
func (m *Manager) retryResizes(ctx context.Context) {
	var all []pendingResize
	for _, r := range m.resizes.pending {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b pendingResize) int {
		return cmp.Or(cmp.Compare(priority(b.pod), priority(a.pod)), cmp.Compare(a.turn, b.turn))
	})
	for _, r := range all {
		if w := m.get(r.pod.UID); w != nil && w.IsActive() {
			m.update(ctx, w, r.pod)
		} else {
			delete(m.resizes.pending, r.pod.UID)
		}
	}
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// forgetResizes forgets what ended pods had.
func (m *Manager) forgetResizes(ctx context.Context, active []*corev1.Pod) {
	if m.o.Resizes.Allocations == nil || !m.isReady() {
		return
	}
	if err := m.o.Resizes.Allocations.Retain(active); err != nil {
		// After a restart they are forgotten again.
		klog.FromContext(ctx).Error(err, "Failed to save the resizes of ended pods")
	}
}
