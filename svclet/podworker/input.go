package podworker

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/pod"
)

// Update replaces the pod's object by a newer one. Volumes that may show its labels
// or annotations are refreshed.
func (w *Worker) Update(p *corev1.Pod) {
	w.mu.Lock()
	old := w.pod
	w.pod = p
	w.mu.Unlock()
	w.enqueue(causeUpdate, func(m *pod.Machine) { m.Update(p) })
	if !maps.Equal(old.Labels, p.Labels) || !maps.Equal(old.Annotations, p.Annotations) {
		w.Refresh()
	}
}

// Pend sets why a resize of the pod is pending; nil means that none is.
func (w *Worker) Pend(p *pod.PendingResize) {
	w.enqueue(causeUpdate, func(m *pod.Machine) { m.Pend(p) })
}

// Remove ends the pod and removes what it has left on the node, as no source has it
// any more. The worker stops when that is done.
func (w *Worker) Remove() {
	w.mu.Lock()
	w.removed = true
	w.mu.Unlock()
	w.enqueue(causeKill, func(m *pod.Machine) { m.Remove() })
}

// Observe passes an observation of the runtime on to the machine, unless a newer one
// is known.
func (w *Worker) Observe(observed pod.Observed) {
	w.mu.Lock()
	stopped := w.stopped
	if stopped && observed.Sequence >= w.observed.Sequence {
		w.observed = observed // for [Worker.Observed] after PodReleased
	}
	w.mu.Unlock()
	if !stopped {
		w.enqueue(causeSync, func(*pod.Machine) { w.observe(observed) })
	}
}

// observe passes an observation on to the machine, unless a newer one is known. It is
// called from the goroutine of work.
func (w *Worker) observe(observed pod.Observed) {
	w.mu.Lock()
	outdated := observed.Sequence < w.observed.Sequence
	if !outdated {
		w.observed = observed
	}
	w.mu.Unlock()
	if !outdated {
		w.machine.Observe(observed)
	}
}

// Probe passes the result of a probe on to the machine.
func (w *Worker) Probe(result pod.ProbeResult) {
	w.enqueue(causeSync, func(m *pod.Machine) { m.Probe(result) })
}

// Refresh updates the pod's volumes with the API objects that they show. Calls during a refresh
// cause one more, after it: a driver that does not respond delays one refresh, and the pod's end
// cancels that. A pod that has ended is not refreshed.
func (w *Worker) Refresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refreshes.Err() != nil {
		return
	}
	if w.refreshing {
		w.refreshPending = true
		return
	}
	w.refreshing = true
	w.o.Goroutines.Go(w.refresh)
}

// refresh refreshes the volumes until no refresh is pending.
func (w *Worker) refresh() {
	for again := true; again; {
		w.o.Executor.Refresh(w.refreshes, w.Pod())
		w.mu.Lock()
		again = w.refreshPending && w.refreshes.Err() == nil
		w.refreshing, w.refreshPending = again, false
		w.mu.Unlock()
	}
}

// HealthChanged reports the pod's status again, with the health of its devices.
func (w *Worker) HealthChanged() { w.enqueue(causeSync, func(*pod.Machine) {}) }

// NodeChanged reports the pod's status and probes again, with what has changed of the node.
func (w *Worker) NodeChanged() { w.enqueue(causeSync, func(*pod.Machine) {}) }

// ObjectsChanged updates the volumes with the API objects that they show, and tries again
// what has failed without them.
func (w *Worker) ObjectsChanged() {
	w.Refresh()
	w.enqueue(causeSync, func(m *pod.Machine) { m.ObjectsChanged() })
}

// Preempt ends the pod within its own grace period. The arguments are those of the
// pod's status, event and condition DisruptionTarget.
func (w *Worker) Preempt(reason, message, conditionMessage string) {
	w.enqueue(causeKill, func(m *pod.Machine) { m.Kill(reason, message, conditionMessage, nil) })
	w.o.Events.Event(w.Pod(), pod.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
}

// Expend removes terminated attempts of containers, by their IDs.
func (w *Worker) Expend(ids map[string]bool) {
	w.enqueue(causeSync, func(m *pod.Machine) { m.Expend(ids) })
}

// Terminate ends the pod, without an event and a metric of its own.
func (w *Worker) Terminate(e pod.Eviction) {
	w.enqueue(causeKill, func(m *pod.Machine) { m.Kill(e.Reason, e.Message, e.Disruption, e.Grace) })
}

// Evict ends the pod. Only the first call for a pod has an effect.
func (w *Worker) Evict(e pod.Eviction) {
	w.mu.Lock()
	evicted := w.evicted
	w.evicted = true
	w.mu.Unlock()
	if evicted {
		return
	}
	w.o.Events.Event(w.Pod(), pod.Event{Type: corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Annotations: e.Annotations})
	w.o.Metrics.PodEvicted(e.Signal)
	w.enqueue(causeKill, func(m *pod.Machine) { m.Kill(e.Reason, e.Message, e.Disruption, e.Grace) })
}
