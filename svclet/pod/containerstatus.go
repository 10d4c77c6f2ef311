package pod

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containerStatus computes the status of a container from its two newest attempts
// in the runtime and, where the runtime no longer knows, from its last status.
func (m *Machine) containerStatus(c *container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	newest, previous := m.attempts(c)
	var s corev1.ContainerStatus
	if newest == nil {
		s = m.unseenStatus(c, old)
	} else {
		s = m.seenStatus(c, newest, previous, old)
	}
	m.overrideState(c, newest, &s)
	m.setReadiness(c, &s)
	return s
}

// unseenStatus returns the status of a container of which the runtime has no
// attempt.
func (m *Machine) unseenStatus(c *container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	if s, discarded := m.discardedStatus(c, old); discarded {
		return s
	}
	if old != nil && old.State.Terminated != nil {
		return *old
	}
	s := m.waitingStatus(c)
	if old == nil {
		return s
	}
	s.RestartCount, s.LastTerminationState = old.RestartCount, old.LastTerminationState
	if old.State.Running != nil && s.LastTerminationState.Terminated == nil {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: exitUnknown, Reason: reasonUnknown, Message: messageVanished,
		}
		if m.pod.DeletionTimestamp == nil {
			s.RestartCount++
		}
	}
	return s
}

// waitingStatus returns the status of a container that has never been created.
func (m *Machine) waitingStatus(c *container) corev1.ContainerStatus {
	reason := reasonCreating
	if len(m.pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	return corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, VolumeMounts: m.volumeMounts(c.spec),
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
	}
}

// seenStatus returns the status of a container whose newest attempt the runtime
// reports.
func (m *Machine) seenStatus(c *container, newest, previous *Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: newest.Image, ImageID: newest.ImageID, ContainerID: containerID(newest),
		RestartCount: int32(newest.Attempt), State: stateOf(newest), User: newest.User,
	}
	if !m.options.WithoutResize {
		s.Resources, s.AllocatedResources = c.resourcesOf(newest), c.spec.Resources.Requests
	}
	if l := c.spec.Lifecycle; l != nil && l.StopSignal != nil { // servers without the gate know neither
		s.StopSignal = newest.StopSignal
	}
	if old == nil || old.VolumeMounts == nil {
		s.VolumeMounts = m.volumeMounts(c.spec)
	} else {
		s.VolumeMounts = old.VolumeMounts
	}
	if old != nil {
		s.RestartCount = max(s.RestartCount, old.RestartCount)
		switch {
		case old.ContainerID != s.ContainerID && old.State.Terminated != nil:
			s.LastTerminationState.Terminated = old.State.Terminated
		case old.LastTerminationState.Terminated != nil &&
			old.LastTerminationState.Terminated.ContainerID != s.ContainerID:
			s.LastTerminationState.Terminated = old.LastTerminationState.Terminated
		}
	}
	if previous != nil && previous.State == Exited {
		s.LastTerminationState = stateOf(previous)
	}
	if newest.State == Unknown && old != nil {
		switch {
		case old.State.Terminated != nil && old.ContainerID == s.ContainerID:
			s.State = old.State
		case old.LastTerminationState.Terminated != nil &&
			old.LastTerminationState.Terminated.ContainerID == s.ContainerID:
			s.State = old.LastTerminationState
		case old.State.Running != nil:
			s.RestartCount = old.RestartCount + 1
			s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: exitUnknown, Reason: reasonUnknown, Message: messageNotLocated, ContainerID: s.ContainerID,
			}}
		}
	}
	return s
}

// stateOf returns the state of an attempt. One that is created and not yet running
// is waiting.
func stateOf(o *Container) corev1.ContainerState {
	switch o.State {
	case Running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second(o.StartedAt)}}
	case Exited:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: o.ExitCode, Reason: o.Reason, Message: o.Message, ContainerID: containerID(o),
			StartedAt: sinceEpoch(o.StartedAt), FinishedAt: sinceEpoch(o.FinishedAt),
		}}
	default:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	}
}

// overrideState sets the state of a container that is to be started to waiting,
// with the reason why it could not be. An init container that the runtime no
// longer has is completed if the containers after it have been started.
func (m *Machine) overrideState(c *container, newest *Container, s *corev1.ContainerStatus) {
	if (c.role == initial || c.role == sidecar) && newest != nil && newest.State == Exited && newest.ExitCode == 0 {
		return
	}
	if c.role == initial && newest == nil && !c.discarded && c.reason == "" && s.State.Waiting != nil && m.regularCreated() {
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", Message: messageInferred,
		}}
		return
	}
	if c.reason == "" || m.pod.DeletionTimestamp != nil || m.ended ||
		newest != nil && (newest.State == Running || newest.State == Exited && !c.restartsAfter(m.pod, newest.ID, newest.ExitCode)) {
		return
	}
	if s.State.Terminated != nil {
		if newest == nil {
			known := *s
			*s = m.waitingStatus(c)
			s.RestartCount, s.State = known.RestartCount, known.State
		}
		s.LastTerminationState = s.State
	}
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.message}}
}

// setReadiness sets started and ready. An init container is ready when it has
// succeeded.
func (m *Machine) setReadiness(c *container, s *corev1.ContainerStatus) {
	if c.role == ephemeral {
		return
	}
	started := s.State.Running != nil && c.isStarted()
	s.Started = &started
	if c.role == initial {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		return
	}
	s.Ready = started && c.isReady()
}

// volumeMounts returns how the container's volumes are mounted (KEP-3857).
func (m *Machine) volumeMounts(c *corev1.Container) []corev1.VolumeMountStatus {
	var all []corev1.VolumeMountStatus
	for _, v := range c.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: v.Name, MountPath: v.MountPath, ReadOnly: v.ReadOnly}
		if v.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if v.RecursiveReadOnly != nil && *v.RecursiveReadOnly != mode && m.node.RecursiveReadOnly {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		all = append(all, s)
	}
	return all
}

// The kernel's minimum of CPU requests and limits, in milli-CPU: at or below it,
// the runtime's value does not tell what was requested.
const (
	minRequest = 2
	minLimit   = 10
)

// resourcesOf returns the resources in force of an attempt: those that it was given,
// overridden by what the runtime reports.
func (c *container) resourcesOf(o *Container) *corev1.ResourceRequirements {
	r := c.spec.Resources.DeepCopy()
	if c.sized != nil && o.ID == c.id {
		r = withCompute(r, c.sized)
	}
	if o.State != Running || o.Resources == nil {
		return r
	}
	overlay := func(wanted, actual corev1.ResourceList, least int64) {
		if wanted == nil {
			return
		}
		if q, ok := actual[corev1.ResourceCPU]; ok && (q.MilliValue() > least || wanted.Cpu().MilliValue() > least) {
			wanted[corev1.ResourceCPU] = q
		}
		if q, ok := actual[corev1.ResourceMemory]; ok {
			wanted[corev1.ResourceMemory] = q
		}
	}
	overlay(r.Limits, o.Resources.Limits, minLimit)
	overlay(r.Requests, o.Resources.Requests, minRequest)
	return r
}

// withCompute returns resources with the CPU and memory of others.
func withCompute(r, of *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	replace := func(list, by corev1.ResourceList) corev1.ResourceList {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(list, name)
			if q, ok := by[name]; ok {
				if list == nil {
					list = corev1.ResourceList{}
				}
				list[name] = q
			}
		}
		return list
	}
	return &corev1.ResourceRequirements{Limits: replace(r.Limits, of.Limits), Requests: replace(r.Requests, of.Requests), Claims: r.Claims}
}

// second truncates a time to the API's precision.
func second(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t).Rfc3339Copy()
}

// sinceEpoch is second for a container that has exited. The runtime reports 1970,
// as 0, for the start of one that never ran, and so does kubelet.
func sinceEpoch(t time.Time) metav1.Time {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	return second(t)
}

func sortByName(all []corev1.ContainerStatus) {
	slices.SortFunc(all, func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
}

// maxMessages is the maximum total length of a pod's termination messages, in
// bytes.
const maxMessages = 12 * 1024

// limitMessages truncates each termination message to its share.
func limitMessages(s *corev1.PodStatus) {
	n := len(s.ContainerStatuses) + len(s.InitContainerStatuses) + len(s.EphemeralContainerStatuses)
	for _, list := range [][]corev1.ContainerStatus{
		s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			shorten(&list[i].State, maxMessages/n)
			shorten(&list[i].LastTerminationState, maxMessages/n)
		}
	}
}

func shorten(s *corev1.ContainerState, limit int) {
	if t := s.Terminated; t != nil && len(t.Message) > limit {
		short := *t
		short.Message = t.Message[:limit]
		s.Terminated = &short
	}
}
