package pod

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// report updates the pod's phase and status. It starts from the last reported
// status, because the runtime may no longer have everything.
func (m *Machine) report() {
	old := &m.reported
	if m.final {
		s := *old
		s.ObservedGeneration = m.pod.Generation
		if !m.neverStarted {
			m.updateTerminated(&s)
			s.Conditions = m.conditions(&s)
		}
		m.status = s
		return
	}
	s := &corev1.PodStatus{
		ObservedGeneration:          m.pod.Generation,
		StartTime:                   old.StartTime,
		QOSClass:                    podspec.QOSClassOf(m.pod),
		ResourceClaimStatuses:       m.pod.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: m.pod.Status.ExtendedResourceClaimStatus,
	}
	if s.StartTime.IsZero() {
		now := second(m.now)
		s.StartTime = &now
	}
	if m.neverStarted {
		// The pod has no container statuses.
		m.phase = corev1.PodFailed
		s.Phase, s.Reason, s.Message = m.phase, m.rejected.reason, m.rejected.message
		m.status, m.final = *s, m.ended
		return
	}
	for i := range m.containers {
		c := &m.containers[i]
		list := statusList(s, c.role)
		*list = append(*list, m.containerStatus(c, statusOf(*statusList(old, c.role), c.spec.Name)))
	}
	m.decidePhase(s)
	if m.ended {
		m.finish(s)
	}
	sortByName(s.ContainerStatuses)
	sortByName(s.EphemeralContainerStatuses)
	limitMessages(s)
	s.Conditions = m.conditions(s)
	m.setShownPhase(s)
	m.setAddresses(s)
	s.AllocatedResources = resource.PodRequests(m.pod, resource.PodResourcesOptions{})
	s.Resources = m.resources(s.Phase)
	s.Resize = m.resizeStatus()
	m.status, m.final = *s, m.ended
}

// updateTerminated updates a terminated state with what the runtime reports late: that the
// kernel's OOM killer ended the container.
func (m *Machine) updateTerminated(s *corev1.PodStatus) {
	for _, list := range []*[]corev1.ContainerStatus{&s.InitContainerStatuses, &s.ContainerStatuses, &s.EphemeralContainerStatuses} {
		*list = slices.Clone(*list)
		for i := range *list {
			end := (*list)[i].State.Terminated
			for j := range m.observed.Containers {
				o := &m.observed.Containers[j]
				if end != nil && containerID(o) == end.ContainerID && o.State == Exited && o.Reason != "" && o.Reason != end.Reason {
					corrected := *end
					corrected.Reason = o.Reason
					(*list)[i].State.Terminated = &corrected
				}
			}
		}
	}
}

// resources returns the pod-level resources. While the pod runs, CPU and memory
// are those of its cgroup, and the others those of its spec.
func (m *Machine) resources(phase corev1.PodPhase) *corev1.ResourceRequirements {
	r := &corev1.ResourceRequirements{
		Requests: resource.PodRequests(m.pod, resource.PodResourcesOptions{}),
		Limits:   resource.PodLimits(m.pod, resource.PodResourcesOptions{}),
	}
	var own corev1.ResourceRequirements
	if m.pod.Spec.Resources != nil {
		own = *m.pod.Spec.Resources
		r.Claims = own.Claims
	}
	if phase != corev1.PodRunning {
		return r
	}
	keep := func(all, own corev1.ResourceList) {
		maps.DeleteFunc(all, func(name corev1.ResourceName, _ apiresource.Quantity) bool {
			_, asked := own[name]
			return !asked && name != corev1.ResourceCPU && name != corev1.ResourceMemory
		})
	}
	keep(r.Requests, own.Requests)
	keep(r.Limits, own.Limits)
	return r
}

// decidePhase sets the phase. Succeeded and Failed are final.
func (m *Machine) decidePhase(s *corev1.PodStatus) {
	switch {
	case podspec.IsTerminal(m.phase):
	case m.rejected != nil, m.killed != nil, m.overdue, m.cannotRecover:
		m.phase = corev1.PodFailed
	default:
		m.phase = m.phaseOf(s, m.ended, m.isInitialized())
	}
}

// isInitialized reports whether a regular container has been created in the
// sandbox that is ready.
func (m *Machine) isInitialized() bool {
	return len(m.observed.Sandboxes) > 0 && m.observed.Sandboxes[0].Ready && m.regularCreated()
}

// regularCreated reports whether a regular container has been created in the
// newest sandbox.
func (m *Machine) regularCreated() bool {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular || len(m.observed.Sandboxes) == 0 {
			continue
		}
		if newest, _ := m.attempts(c); newest != nil && newest.SandboxID == m.observed.Sandboxes[0].ID {
			return true
		}
	}
	return false
}

// setShownPhase sets the phase in the status, with its reason and message. The status
// does not show a terminal phase before the containers have exited, unless the API
// server already does: the scheduler and other controllers would reuse the pod's
// resources too early.
func (m *Machine) setShownPhase(s *corev1.PodStatus) {
	old, api := &m.reported, &m.pod.Status
	if podspec.IsTerminal(m.phase) && !podspec.IsTerminal(old.Phase) && !podspec.IsTerminal(api.Phase) && !m.ended {
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
		if s.Phase == "" {
			s.Phase = corev1.PodPending
		}
		return
	}
	s.Phase = m.phase
	switch {
	case s.Phase == old.Phase:
		s.Reason, s.Message = old.Reason, old.Message
	case m.rejected != nil:
		s.Reason, s.Message = m.rejected.reason, m.rejected.message
	case m.killed != nil:
		s.Reason, s.Message = m.killed.reason, m.killed.message
	case m.overdue:
		s.Reason, s.Message = reasonDeadline, messageDeadline
	}
	if s.Phase == api.Phase {
		s.Reason, s.Message = cmp.Or(s.Reason, api.Reason), cmp.Or(s.Message, api.Message)
	}
}

// finish makes the status final: every container that was ever started has
// terminated, and so has the pod.
func (m *Machine) finish(s *corev1.PodStatus) {
	if m.hasInitialized() {
		for i := range s.ContainerStatuses {
			terminate(&s.ContainerStatuses[i])
		}
	}
	for i := range s.InitContainerStatuses[:started(s.InitContainerStatuses)] {
		terminate(&s.InitContainerStatuses[i])
	}
	if !podspec.IsTerminal(m.phase) && !isStatic(m.pod) {
		m.phase = corev1.PodFailed
	}
}

func terminate(s *corev1.ContainerStatus) {
	if s.State.Terminated != nil {
		return
	}
	ready := false
	s.Ready, s.Started = ready, &ready
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitUnknown, Reason: reasonUnknown, Message: messageNotLocated,
	}}
}

// started returns the number of init containers up to the last one that was ever
// started: at least 1 if there are any.
func started(all []corev1.ContainerStatus) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].State.Waiting == nil || all[i].LastTerminationState.Terminated != nil {
			return i + 1
		}
	}
	return min(len(all), 1)
}

// hasInitialized reports whether the last status shows that the regular containers
// had been started, or were about to be.
func (m *Machine) hasInitialized() bool {
	last := -1
	for i := range m.containers {
		if r := m.containers[i].role; r == initial || r == sidecar {
			last = i
		}
	}
	if last < 0 {
		return true
	}
	for i := range m.reported.ContainerStatuses {
		s := &m.reported.ContainerStatuses[i]
		if s.LastTerminationState.Terminated != nil || s.State.Waiting == nil {
			return true
		}
	}
	s := statusOf(m.reported.InitContainerStatuses, m.containers[last].spec.Name)
	if s == nil {
		return false
	}
	if m.containers[last].role == sidecar {
		return s.State.Running != nil && s.Started != nil && *s.Started
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && t.ExitCode == 0 {
			return true
		}
	}
	return false
}

// setAddresses sets the addresses of the node and of the pod. An ended pod keeps
// its addresses.
func (m *Machine) setAddresses(s *corev1.PodStatus) {
	for _, ip := range m.addresses() {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(s.PodIPs) == 0 && (m.ended || m.isTerminating()) {
		s.PodIPs = m.reported.PodIPs
	}
	hosts := m.node.HostIPs
	if len(hosts) > 0 {
		s.HostIP = hosts[0]
		if !m.options.WithoutHostIPs {
			for _, ip := range hosts {
				s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
			}
		}
		if m.pod.Spec.HostNetwork {
			if len(s.PodIPs) == 0 {
				s.PodIPs = []corev1.PodIP{{IP: hosts[0]}}
			}
			if len(hosts) == 2 && len(s.PodIPs) == 1 && isSix(s.PodIPs[0].IP) != isSix(hosts[1]) {
				s.PodIPs = append(s.PodIPs[:1:1], corev1.PodIP{IP: hosts[1]})
			}
		}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// statusList returns the list in the status that holds containers of this role.
func statusList(s *corev1.PodStatus, r role) *[]corev1.ContainerStatus {
	switch r {
	case initial, sidecar:
		return &s.InitContainerStatuses
	case ephemeral:
		return &s.EphemeralContainerStatuses
	default:
		return &s.ContainerStatuses
	}
}

// statusOf returns the status of the container with this name.
func statusOf(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// statusOf returns the container's last reported status.
func (m *Machine) statusOf(c *container) *corev1.ContainerStatus {
	return statusOf(*statusList(&m.reported, c.role), c.spec.Name)
}
