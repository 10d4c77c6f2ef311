package podworker

import (
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/pod"
)

// Pod returns the pod's object as its source has it. The caller must not change it.
func (w *Worker) Pod() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// Observed returns the newest observation of the pod.
func (w *Worker) Observed() pod.Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

// Status returns the status that the node gives the pod; its phase is empty until
// the machine has decided for the first time.
func (w *Worker) Status() corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// PodWithStatus returns the pod with the status that the node gives it.
func (w *Worker) PodWithStatus() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := *w.pod
	if w.status.Phase != "" {
		p.Status = w.status
	}
	return &p
}

// IsOrphaned reports whether no source had the pod when its worker started.
func (w *Worker) IsOrphaned() bool { return w.start.Orphaned }

// IsRemoved reports whether no source has the pod any more.
func (w *Worker) IsRemoved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removed
}

// IsActive reports whether the pod uses resources of the node, or will.
func (w *Worker) IsActive() bool { return w.MayRun() && !w.start.Orphaned }

// MayRun reports whether a container of the pod runs, or may run later. An orphaned pod may run,
// too, until it has ended.
func (w *Worker) MayRun() bool { return w.rejected() == nil && !w.HasEnded() }

// rejected returns why the node does not admit the pod; nil if it does.
func (w *Worker) rejected() *Rejection {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rejection
}

// IsReleased reports whether the node has got back everything that the pod used.
func (w *Worker) IsReleased() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.released
}

// Ended returns a channel that is closed when no container of the pod runs any more
// and none will.
func (w *Worker) Ended() <-chan struct{} { return w.ended }

// HasEnded reports whether no container of the pod runs any more and none will.
func (w *Worker) HasEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}
