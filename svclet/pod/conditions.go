package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// isOurs reports whether the node agent owns conditions of this type.
func isOurs(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReadyToStartContainers, corev1.PodResizePending, corev1.PodResizeInProgress,
		corev1.AllContainersRestarting:
		return true
	default:
		return false
	}
}

// conditions returns the conditions of other writers as the API server has them,
// followed by the agent's own.
func (m *Machine) conditions(s *corev1.PodStatus) []corev1.PodCondition {
	all := make([]corev1.PodCondition, 0, len(m.pod.Status.Conditions)+6)
	for _, c := range m.pod.Status.Conditions {
		if !isOurs(c.Type) && (c.Type != corev1.DisruptionTarget || !m.isDisrupted()) {
			all = append(all, c)
		}
	}
	set := func(c corev1.PodCondition) {
		c.ObservedGeneration = m.pod.Generation
		c.LastTransitionTime = second(m.now)
		if old := conditionOf(m.reported.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		all = append(all, c)
	}
	if m.isDisrupted() {
		set(corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: reasonTermination, Message: m.killed.disruption,
		})
	}
	if lost, _ := m.sandboxLost(); !m.options.WithoutReadyToStart {
		set(corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: statusFor(!lost)})
	}
	set(m.initialized(s))
	containers := m.containersReady(s)
	set(ready(m.pod, all, containers))
	set(containers)
	set(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	for _, c := range m.restartAllConditions() {
		set(c)
	}
	for _, c := range m.resizeConditions() {
		set(c)
	}
	return all
}

// isDisrupted reports whether the pod was terminated because of the node (a
// disruption) and not because of its own behavior.
func (m *Machine) isDisrupted() bool { return m.killed != nil && m.killed.disruption != "" && m.ended }

// initialized returns the condition Initialized: whether the init containers have
// completed.
func (m *Machine) initialized(s *corev1.PodStatus) corev1.PodCondition {
	condition := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if m.phase == corev1.PodSucceeded {
		condition.Reason = "PodCompleted"
		return condition
	}
	for i := range s.ContainerStatuses {
		if state := &s.ContainerStatuses[i].State; state.Running != nil || state.Terminated != nil {
			return condition
		}
	}
	var incomplete []string
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != initial && c.role != sidecar {
			continue
		}
		status := statusOf(s.InitContainerStatuses, c.spec.Name)
		if c.role == initial && !status.Ready || c.role == sidecar && !*status.Started {
			incomplete = append(incomplete, c.spec.Name)
		}
	}
	if old := conditionOf(m.reported.Conditions, corev1.PodInitialized); incomplete != nil &&
		(old == nil || old.Status != corev1.ConditionTrue) {
		condition.Status = corev1.ConditionFalse
		condition.Reason = "ContainersNotInitialized"
		condition.Message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return condition
}

// containersReady returns the condition ContainersReady: whether all sidecars and
// regular containers are ready.
func (m *Machine) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	condition := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch m.phase {
	case corev1.PodSucceeded:
		condition.Reason = "PodCompleted"
		return condition
	case corev1.PodFailed:
		condition.Reason = "PodFailed"
		return condition
	}
	var unready []string
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != sidecar && c.role != regular {
			continue
		}
		if status := statusOf(*statusList(s, c.role), c.spec.Name); !status.Ready {
			unready = append(unready, c.spec.Name)
		}
	}
	if unready == nil {
		condition.Status = corev1.ConditionTrue
		return condition
	}
	condition.Reason = "ContainersNotReady"
	condition.Message = fmt.Sprintf("containers with unready status: %s", unready)
	return condition
}

// ready returns the condition Ready: the containers are ready, and all readiness
// gates are true.
func ready(pod *corev1.Pod, all []corev1.PodCondition, containers corev1.PodCondition) corev1.PodCondition {
	condition := containers
	condition.Type = corev1.PodReady
	if condition.Status != corev1.ConditionTrue {
		return condition
	}
	var unready []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := conditionOf(all, gate.ConditionType); {
		case c == nil:
			unready = append(unready, fmt.Sprintf(
				"corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			unready = append(unready, fmt.Sprintf(
				"the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	if unready != nil {
		condition.Status = corev1.ConditionFalse
		condition.Reason = "ReadinessGatesNotReady"
		condition.Message = strings.Join(unready, ", ")
	}
	return condition
}

func conditionOf(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range all {
		if all[i].Type == t {
			return &all[i]
		}
	}
	return nil
}

func statusFor(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
