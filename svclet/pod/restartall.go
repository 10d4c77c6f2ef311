package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// restartAll removes the containers of the pod, but for ephemeral ones, once one of them has
// exited with a code for which its rules restart all (KEP-5532): they start again from the first
// init container, in the same sandbox, with the same volumes. They get no time to stop, and no
// back-off. It reports whether that goes on.
//
// The containers that have exited with such a code are removed last: an agent that is started
// meanwhile finds them.
func (m *Machine) restartAll() (busy bool) {
	if !m.restartingAll && !m.mustRestartAll() {
		return false
	}
	m.beginRestartAll()
	if !m.cancelContainers() {
		return true
	}
	targets, sources := false, []*Container{}
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		c := m.container(o.Name)
		switch {
		case c == nil || c.role == ephemeral:
		case o.State == Exited && c.restartsAllAfter(o.ExitCode):
			sources = append(sources, o)
		default:
			targets = true
			m.discard(c, o)
		}
	}
	if targets {
		return true
	}
	for _, o := range sources {
		m.discard(m.container(o.Name), o)
	}
	m.restartingAll = len(sources) > 0
	return m.restartingAll
}

// mustRestartAll reports whether the newest attempt of a container has exited with a code for which
// all containers are restarted.
func (m *Machine) mustRestartAll() bool {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role == ephemeral || len(c.spec.RestartPolicyRules) == 0 {
			continue
		}
		if newest, _ := m.attempts(c); newest != nil && newest.State == Exited && c.restartsAllAfter(newest.ExitCode) {
			return true
		}
	}
	return false
}

func (m *Machine) beginRestartAll() {
	if m.restartingAll {
		return
	}
	m.restartingAll = true
	for i := range m.containers {
		if c := &m.containers[i]; c.role != ephemeral {
			c.discarded, c.reason, c.message, c.outcome = true, "", "", nil
		}
	}
}

// recallRestartAll continues what an earlier agent has begun, unless it has already started a
// container again.
func (m *Machine) recallRestartAll() {
	begun := conditionOf(m.reported.Conditions, corev1.AllContainersRestarting)
	if m.options.WithoutRestartAll || begun == nil || begun.Status != corev1.ConditionTrue {
		return
	}
	for i := range m.containers {
		c := &m.containers[i]
		if newest, _ := attempts(m.observed.Containers, c.spec.Name); newest != nil && c.role != ephemeral && newest.Attempt >= c.next {
			return
		}
	}
	m.beginRestartAll()
}

// cancelContainers cancels the starts of all containers but ephemeral ones, and reports whether
// none is left.
func (m *Machine) cancelContainers() (quiet bool) {
	quiet = true
	for _, o := range slices.Clone(m.operations) {
		c := m.container(o.Name)
		if c == nil || c.role == ephemeral || o.Kind != StartContainer && o.Kind != Cancel {
			continue
		}
		quiet = false
		m.request(Operation{Kind: Cancel, Name: o.Name, Attempt: o.Attempt})
	}
	return quiet
}

// discard kills an attempt of a container, if it runs, and removes it. Its log stays.
func (m *Machine) discard(c *container, o *Container) {
	if o.State == Running || o.State == Unknown && !slices.Contains(m.stopped, o.ID) {
		message := fmt.Sprintf("Stopping container %s, all containers of the pod are restarted", o.Name)
		m.recordKilling(c, o, message)
		m.request(Operation{
			Kind: StopContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt, SandboxID: o.SandboxID,
			Kill: true, Reason: reasonKilling, Message: message,
		})
		return
	}
	m.request(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt, KeepLog: true})
}

// discardedStatus returns the status of a container that the runtime no longer has because all are
// restarted; ok is false if it was not running, and had not run, before.
func (m *Machine) discardedStatus(c *container, old *corev1.ContainerStatus) (s corev1.ContainerStatus, ok bool) {
	if !c.discarded || old == nil {
		return s, false
	}
	s = m.waitingStatus(c)
	if old.State.Waiting != nil {
		s.RestartCount, s.State, s.LastTerminationState = old.RestartCount, old.State, old.LastTerminationState
		return s, old.State.Waiting.Reason == reasonRestartingAll
	}
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: messageRestartingAll}
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: exitUnknown, Reason: reasonRestartingAll, Message: messageRestartingAll,
	}
	s.RestartCount = old.RestartCount + 1
	return s, true
}

// restartAllConditions returns the condition AllContainersRestarting of a pod whose rules may
// restart all containers.
func (m *Machine) restartAllConditions() []corev1.PodCondition {
	if m.options.WithoutRestartAll || !podspec.MayRestartAll(&m.pod.Spec) {
		return nil
	}
	condition := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: statusFor(m.restartingAll)}
	switch {
	case m.phase == corev1.PodSucceeded:
		condition.Status, condition.Reason = corev1.ConditionFalse, "PodCompleted"
	case m.phase == corev1.PodFailed:
		condition.Status, condition.Reason = corev1.ConditionFalse, "PodFailed"
	case m.restartingAll:
		condition.Reason, condition.Message = "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	return []corev1.PodCondition{condition}
}
