package pod

import corev1 "k8s.io/api/core/v1"

// census counts the containers of a pod by what they do.
type census struct {
	// pendingInit are init containers that have not done their work,
	// pendingSidecars those that have not started for the first time, fatalInit
	// those that have failed for good.
	pendingInit, pendingSidecars, fatalInit int
	// Of sidecars and regular containers.
	unknown, running, waiting int
	// Of regular containers: those that have ended, that will not run again,
	// that ended well.
	stopped, final, succeeded int
}

// phaseOf returns the phase of a pod whose containers have these statuses.
// Settled says that none of them will run again whatever its restart policy,
// initialized that a regular container has been created in the present sandbox.
func (m *Machine) phaseOf(s *corev1.PodStatus, settled, initialized bool) corev1.PodPhase {
	var n census
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

func (n *census) addInit(pod *corev1.Pod, c *container, s *corev1.ContainerStatus) {
	ended := endOf(s)
	switch {
	case s == nil || s.State.Running != nil || ended == nil:
		n.pendingInit++
	case ended.ExitCode != 0 && !c.restartsAfter(pod, c.id, ended.ExitCode):
		n.fatalInit++
	}
}

func (n *census) addSidecar(s *corev1.ContainerStatus) {
	switch {
	case s == nil:
		n.unknown++
	case s.State.Running != nil:
		if s.Started == nil || !*s.Started {
			n.pendingSidecars++
		}
		n.running++
	case s.State.Terminated != nil || s.LastTerminationState.Terminated != nil:
		// A sidecar that has ended says nothing about the pod.
	default:
		n.pendingSidecars++
		n.waiting++
	}
}

func (n *census) addRegular(pod *corev1.Pod, c *container, s *corev1.ContainerStatus) {
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
		if !c.restartsAfter(pod, c.id, ended.ExitCode) {
			n.final++
		}
		if s.State.Terminated != nil && ended.ExitCode == 0 {
			n.succeeded++
		}
	}
}

// endOf returns how a container that does not run has ended.
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

func isTerminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// sourceAnnotation names where a pod comes from; the agent writes it.
const sourceAnnotation = "kubernetes.io/config.source"

// isStatic says whether a pod comes from elsewhere than the API.
func isStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != "api"
}
