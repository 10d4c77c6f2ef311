package podmanager

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podworker"
)

// sortForAdmission sorts pods into the order in which they are admitted: pods that
// run already keep their place, then older pods come before newer ones.
func (m *Manager) sortForAdmission(set []*corev1.Pod) {
	isNew := func(p *corev1.Pod) int {
		if _, held := m.adoptable[p.UID]; held {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(set, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(isNew(a), isNew(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
}

// admit decides whether the node admits a pod. It returns a rejection if not, and
// otherwise what the pod has to wait for, nil for nothing. Pods that have ended or
// are being deleted are admitted: they use no resources.
func (m *Manager) admit(p *corev1.Pod) (rejection *podworker.Rejection, wait func(context.Context) *podworker.Rejection) {
	if p.DeletionTimestamp != nil || podspec.IsTerminal(p.Status.Phase) {
		return nil, nil
	}
	present, options := m.present(), m.o.Admission
	if m.o.ShuttingDown != nil {
		options.ShuttingDown = m.o.ShuttingDown()
	}
	if m.o.Pressure != nil {
		options.Pressure = m.o.Pressure()
	}
	refusal := admit.Admit(p, present, m.o.Node.Object(), options)
	var victims []*corev1.Pod
	if refusal != nil && len(refusal.Shortages) > 0 {
		var err error
		if victims, err = admit.Victims(p, present, refusal.Shortages); err == nil {
			refusal = nil
		} else {
			refusal = admit.NoVictims(err)
		}
	}
	if refusal == nil {
		wait, refusal = m.allocateOrWait(p)
	}
	switch {
	case refusal != nil:
		return m.reject(p, refusal), nil
	case len(victims) > 0:
		return nil, inOrder(m.preempt(victims), wait)
	}
	return nil, wait
}

// reject records that the node does not admit a pod.
func (m *Manager) reject(p *corev1.Pod, refusal *admit.Refusal) *podworker.Rejection {
	m.o.Events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: refusal.Reason, Message: refusal.Message})
	m.o.Metrics.PodRejected(refusal.Reason)
	return &podworker.Rejection{Reason: refusal.Reason, Message: refusal.Message}
}

// inOrder returns a function that waits first for the one, then for the other unless that is nil.
func inOrder(first func(context.Context), then func(context.Context) *podworker.Rejection) func(context.Context) *podworker.Rejection {
	return func(ctx context.Context) *podworker.Rejection {
		first(ctx)
		if then == nil {
			return nil
		}
		return then(ctx)
	}
}

// minVictimWait is the shortest time that a critical pod waits for the end of a pod
// that it preempts. Otherwise it waits for one and a half grace periods of that pod.
const minVictimWait = 10 * time.Second

// preempt ends pods in favour of a critical one, each within its own grace period.
// It returns a function that waits until they have ended.
func (m *Manager) preempt(victims []*corev1.Pod) (wait func(context.Context)) {
	var waits []func(context.Context)
	for _, victim := range victims {
		w := m.get(victim.UID)
		w.Preempt(admit.PreemptedReason, admit.PreemptedMessage, admit.PreemptedConditionMessage)
		grace := pod.Seconds(ptr.Deref(victim.Spec.TerminationGracePeriodSeconds, 0))
		late := m.o.Clock.After(max(grace+grace/2, minVictimWait))
		waits = append(waits, func(ctx context.Context) {
			select {
			case <-w.Ended():
			case <-ctx.Done():
			case <-late:
				m.o.Events.Event(victim, pod.Event{
					Type: corev1.EventTypeWarning, Reason: "ExceededGracePeriod", Message: "Container runtime did not kill the pod within specified grace period.",
				})
			}
		})
	}
	return func(ctx context.Context) {
		for _, wait := range waits {
			wait(ctx)
		}
	}
}
