package pod

import corev1 "k8s.io/api/core/v1"

// containerCounts counts the containers of a pod by their state.
type containerCounts struct {
	// pendingInit are init containers that have not completed, pendingSidecars those
	// that have not started for the first time, fatalInit those that have failed for
	// good.
	pendingInit, pendingSidecars, fatalInit int
	// Counts of sidecars and regular containers.
	unknown, running, waiting int
	// Counts of regular containers: exited, exited and not to be restarted, exited
	// with code 0.
	stopped, final, succeeded int
}

// phaseOf returns the phase of a pod whose containers have these statuses. settled
// means that none of them will be restarted whatever its restart policy,
// initialized that a regular container has been created in the current sandbox.
func (m *Machine) phaseOf(s *corev1.PodStatus, settled, initialized bool) corev1.PodPhase {
	var n containerCounts
	for i := range m.containers {
		c := &m.containers[i]
		switch c.role {
		case initial:
			n.addInit(m.pod, c, statusOf(s.InitContainerStatuses, c.spec.Name))
		case sidecar:
			n.addSidecar(statusOf(s.InitContainerStatuses, c.spec.Name))
		case regular:
			n.addRegular(m.pod, c, statusOf(s.ContainerStatuses, c.spec.Name))
		case ephemeral:
		}
	}
	switch {
	case n.fatalInit > 0:
		return corev1.PodFailed
	case n.pendingInit > 0, n.pendingSidecars > 0 && !initialized, n.waiting > 0, n.unknown > 0:
		return corev1.PodPending
	case n.running > 0:
		return corev1.PodRunning
	case n.stopped == 0:
		return corev1.PodPending
	case n.stopped != n.final && (!settled || isStatic(m.pod)):
		return corev1.PodRunning
	case n.stopped == n.succeeded:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

func (n *containerCounts) addInit(pod *corev1.Pod, c *container, s *corev1.ContainerStatus) {
	ended := endOf(s)
	switch {
	case s == nil || s.State.Running != nil || ended == nil:
		n.pendingInit++
	case ended.ExitCode != 0 && ended.Reason != reasonRestartingAll && !c.restartsAfter(pod, c.id, ended.ExitCode):
		n.fatalInit++
	}
}

func (n *containerCounts) addSidecar(s *corev1.ContainerStatus) {
	switch {
	case s == nil:
		n.unknown++
	case s.State.Running != nil:
		if s.Started == nil || !*s.Started {
			n.pendingSidecars++
		}
		n.running++
	case s.State.Terminated != nil || s.LastTerminationState.Terminated != nil:
		// An exited sidecar does not affect the phase.
	default:
		n.pendingSidecars++
		n.waiting++
	}
}

func (n *containerCounts) addRegular(pod *corev1.Pod, c *container, s *corev1.ContainerStatus) {
	ended := endOf(s)
	switch {
	case s == nil:
		n.unknown++
	case s.State.Running != nil:
		n.running++
	case ended == nil:
		n.waiting++
	default:
		n.stopped++
		if ended.Reason != reasonRestartingAll && !c.restartsAfter(pod, c.id, ended.ExitCode) {
			n.final++
		}
		if s.State.Terminated != nil && ended.ExitCode == 0 {
			n.succeeded++
		}
	}
}

// endOf returns the terminated state of a container that does not run.
func endOf(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s == nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	default:
		return nil
	}
}

// sourceAnnotation is the source of a pod ("file", "http", "api"), written by the
// agent.
const sourceAnnotation = "kubernetes.io/config.source"

// isStatic reports whether the pod comes from another source than the API server.
func isStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != "api"
}
