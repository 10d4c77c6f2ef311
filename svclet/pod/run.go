package pod

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

// run makes progress with a pod that is desired: its resources, its sandbox, its
// init containers in order, its containers.
func (m *Machine) run() {
	if !m.isSetUp {
		if !m.inFlight(SetUp, "") {
			m.asked = sizeOf(m.pod)
		}
		m.request(Operation{Kind: SetUp})
		return
	}
	if m.inFlight(CreateSandbox, "") {
		return
	}
	if lost, attempt := m.sandboxLost(); lost {
		m.replaceSandbox(attempt)
		return
	}
	if m.restartAll() {
		m.startEphemeral()
		return
	}
	m.prune()
	p := m.plan()
	if p.kill {
		m.halt(m.specGrace())
		return
	}
	m.halting = time.Time{}
	for _, s := range p.stop {
		m.stop(s.container, s.observed, s.grace, s.message)
	}
	m.resize()
	m.startEphemeral()
	m.startOne(p.start)
}

// sandboxLost reports whether the pod needs a new sandbox, and its attempt number:
// the pod has none, or several that are ready, or the newest one is not ready or
// has no address.
func (m *Machine) sandboxLost() (bool, uint32) {
	all := m.observed.Sandboxes
	if len(all) == 0 {
		return true, 0
	}
	ready := 0
	for i := range all {
		if all[i].Ready {
			ready++
		}
	}
	newest := &all[0]
	lost := ready > 1 || !newest.Ready || !m.pod.Spec.HostNetwork && len(newest.IPs) == 0
	return lost, newest.Attempt + 1
}

// replaceSandbox stops everything that runs in the pod and creates a sandbox, in
// which initialization starts from the first container.
func (m *Machine) replaceSandbox(attempt uint32) {
	known := len(m.observed.Sandboxes) > 0
	start := m.startInNewSandbox(attempt)
	if start && known && m.sandboxEventFor != m.observed.Sandboxes[0].ID {
		m.sandboxEventFor = m.observed.Sandboxes[0].ID
		m.event(corev1.EventTypeNormal, reasonSandboxChanged, messageSandboxChanged, nil)
	}
	if known && !m.halt(m.specGrace()) {
		return
	}
	if !start {
		m.cannotRecover = !podspec.IsTerminal(m.phase)
		return
	}
	m.halting = time.Time{}
	clear := true
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		if c := m.container(o.Name); c != nil && (c.role == initial || c.role == sidecar) {
			clear = false
			m.request(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt})
		}
	}
	if clear {
		m.request(Operation{Kind: CreateSandbox, Attempt: attempt})
	}
}

// startInNewSandbox reports whether any container would be started in a new
// sandbox.
func (m *Machine) startInNewSandbox(attempt uint32) bool {
	if m.pod.Spec.RestartPolicy == corev1.RestartPolicyNever && attempt != 0 && len(m.observed.Containers) > 0 {
		return false
	}
	created := false
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular {
			continue
		}
		newest, _ := m.attempts(c)
		if newest != nil && newest.State != Unknown {
			created = true
		}
		policy := string(m.pod.Spec.RestartPolicy)
		if c.spec.RestartPolicy != nil {
			policy = string(*c.spec.RestartPolicy)
		}
		done := policy == string(corev1.RestartPolicyOnFailure) &&
			newest != nil && newest.State == Exited && newest.ExitCode == 0
		if !done {
			return true
		}
	}
	return !created
}

// startEphemeral starts the ephemeral containers. They run once, in parallel to
// the others.
func (m *Machine) startEphemeral() {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != ephemeral {
			continue
		}
		if c.next == 0 && !m.inStartBackOff(c) {
			m.launch(c)
		}
	}
}

// startOne starts the first of the due containers that may start now. They start
// one after the other: the next one starts after the postStart hook of the
// previous one. An init container that has to wait delays all that follow it.
func (m *Machine) startOne(due []*container) {
	for _, o := range m.operations {
		if c := m.container(o.Name); c != nil && c.role != ephemeral &&
			(o.Kind == StartContainer || o.Kind == Cancel) {
			return
		}
	}
	for _, c := range due {
		if m.mustWait(c) {
			if c.role == initial {
				return
			}
			continue
		}
		m.launch(c)
		return
	}
}

// mustWait reports whether a container that is to be started has to wait.
func (m *Machine) mustWait(c *container) bool {
	if m.stopping(c) {
		return true
	}
	newest, previous := m.attempts(c)
	if newest != nil && newest.State == Running {
		return true // it has to be stopped first
	}
	if newest != nil && newest.State == Unknown && !slices.Contains(m.stopped, newest.ID) {
		return true
	}
	return m.inStartBackOff(c) || newest != nil && m.inCrashLoopBackOff(c, newest, previous)
}

// launch starts a container in the newest sandbox.
func (m *Machine) launch(c *container) {
	m.request(Operation{
		Kind: StartContainer, Name: c.spec.Name, Attempt: c.next, SandboxID: m.observed.Sandboxes[0].ID,
	})
}

// stop stops an attempt of a container.
func (m *Machine) stop(c *container, o *Container, grace time.Duration, message string) {
	op := Operation{
		Kind: StopContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt, SandboxID: o.SandboxID,
		Grace: grace, Hook: grace > 0 && o.State == Running, Reason: reasonKilling, Message: message,
	}
	if c != nil {
		op.Hook = op.Hook && c.hooked != o.ID && hasPreStop(c.spec)
		m.recordKilling(c, o, message)
	}
	m.request(op)
}

// recordKilling records the event that an attempt of a container is being stopped.
func (m *Machine) recordKilling(c *container, o *Container, message string) {
	if c.killingEventFor != o.ID {
		c.killingEventFor = o.ID
		m.event(corev1.EventTypeNormal, reasonKilling, message, c)
	}
}

func hasPreStop(c *corev1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PreStop != nil }

// prune removes what need not be kept: attempts of a container other than the newest, which
// is removed only if it is expendable and the pod has ended, and, for `logs --previous`, as many before it as the options say, and sandboxes other
// than the newest that have no containers.
func (m *Machine) prune() {
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		newer := 0
		for j := range m.observed.Containers[:i] {
			if m.observed.Containers[j].Name == o.Name {
				newer++
			}
		}
		c := m.container(o.Name)
		switch {
		case c == nil || newer == 0 && !(m.ended && m.expendable[o.ID]):
		case o.State == Running || o.State == Unknown && !slices.Contains(m.stopped, o.ID):
			m.stop(c, o, m.specGrace(), fmt.Sprintf("Stopping container %s", o.Name))
		case m.expired(o, newer):
			m.request(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt})
		}
	}
	for i := range m.observed.Sandboxes {
		s := &m.observed.Sandboxes[i]
		if i == 0 || slices.ContainsFunc(m.observed.Containers, func(c Container) bool { return c.SandboxID == s.ID }) {
			continue
		}
		if s.Ready || !slices.Contains(m.stopped, s.ID) {
			m.request(Operation{Kind: StopSandbox, ID: s.ID, Attempt: s.Attempt})
			continue
		}
		m.request(Operation{Kind: RemoveSandbox, ID: s.ID, Attempt: s.Attempt})
	}
}

// expired reports whether an attempt of a container that has newer ones need not be kept
// any more.
func (m *Machine) expired(o *Container, newer int) bool {
	if m.expendable[o.ID] {
		return true
	}
	if kept := ptr.Deref(m.options.DeadContainers, 1); kept < 0 || newer <= kept {
		return false
	}
	ttl := m.options.DeadContainerTTL
	if end := o.CreatedAt.Add(ttl); ttl > 0 && m.now.Before(end) { // kubelet's, too, begins then
		m.wakeAt(end)
		return false
	}
	return true
}

// addresses returns the pod's addresses, at most one of each IP family, that of
// the node's primary family first, as it was when the node's addresses became known.
func (m *Machine) addresses() []string {
	if m.pod.Spec.HostNetwork || len(m.observed.Sandboxes) == 0 || !m.observed.Sandboxes[0].Ready {
		return nil
	}
	var first, second string
	for _, text := range m.observed.Sandboxes[0].IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if is6 := ip.Is6() && !ip.Is4In6(); is6 == m.six && first == "" {
			first = ip.Unmap().String()
		} else if is6 != m.six && second == "" {
			second = ip.Unmap().String()
		}
	}
	return slices.DeleteFunc([]string{first, second}, func(s string) bool { return s == "" })
}

func isSix(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is6() && !ip.Is4In6()
}
