package pod

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// run brings a pod that is wanted on: what it stands on, its sandbox, its init
// containers in order, its containers.
func (m *Machine) run() {
	if !m.isSetUp {
		m.ask(Operation{Kind: SetUp})
		return
	}
	if m.inFlight(CreateSandbox, "") {
		return
	}
	if lost, attempt := m.sandboxLost(); lost {
		m.replaceSandbox(attempt)
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
	m.startEphemeral()
	m.startOne(p.start)
}

// sandboxLost says whether the pod needs a new sandbox, and of which attempt:
// it has none, or more than one that is ready, or the newest is not ready or
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

// replaceSandbox stops all that runs in the pod, and creates a sandbox, in
// which initialization starts from the first container.
func (m *Machine) replaceSandbox(attempt uint32) {
	known := len(m.observed.Sandboxes) > 0
	start := m.startInNewSandbox(attempt)
	if start && known && m.announced != m.observed.Sandboxes[0].ID {
		m.announced = m.observed.Sandboxes[0].ID
		m.event(corev1.EventTypeNormal, reasonSandboxChanged, messageSandboxChanged, nil)
	}
	if known && !m.halt(m.specGrace()) {
		return
	}
	if !start {
		m.stranded = !isTerminal(m.phase)
		return
	}
	m.halting = time.Time{}
	clear := true
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		if c := m.container(o.Name); c != nil && (c.role == initial || c.role == sidecar) {
			clear = false
			m.ask(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt})
		}
	}
	if clear {
		m.ask(Operation{Kind: CreateSandbox, Attempt: attempt})
	}
}

// startInNewSandbox says whether anything would be started in a new sandbox.
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

// startEphemeral starts the ephemeral containers, which run once, beside the
// others.
func (m *Machine) startEphemeral() {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != ephemeral {
			continue
		}
		if c.next == 0 && !m.heldByFailure(c) {
			m.launch(c)
		}
	}
}

// startOne starts the first of these containers that may start now. They start
// one after the other: each has run its postStart hook when the next is
// started. An init container that has to wait holds up all after it.
func (m *Machine) startOne(due []*container) {
	for _, o := range m.flight {
		if c := m.container(o.Name); c != nil && c.role != ephemeral &&
			(o.Kind == StartContainer || o.Kind == Cancel) {
			return
		}
	}
	for _, c := range due {
		if m.held(c) {
			if c.role == initial {
				return
			}
			continue
		}
		m.launch(c)
		return
	}
}

// held says whether a container that is to start has to wait.
func (m *Machine) held(c *container) bool {
	if m.stopping(c) {
		return true
	}
	newest, previous := m.attempts(c)
	if newest != nil && newest.State == Running {
		return true // it is to be stopped first
	}
	if newest != nil && newest.State == Unknown && !slices.Contains(m.stopped, newest.ID) {
		return true
	}
	return m.heldByFailure(c) || newest != nil && m.heldByCrashes(c, newest, previous)
}

// launch starts a container in the newest sandbox.
func (m *Machine) launch(c *container) {
	m.ask(Operation{
		Kind: StartContainer, Name: c.spec.Name, Attempt: c.next, SandboxID: m.observed.Sandboxes[0].ID,
	})
}

// stop stops one attempt of a container.
func (m *Machine) stop(c *container, o *Container, grace time.Duration, message string) {
	op := Operation{
		Kind: StopContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt, SandboxID: o.SandboxID,
		Grace: grace, Hook: grace > 0 && o.State == Running, Reason: reasonKilling, Message: message,
	}
	if c != nil {
		op.Hook = op.Hook && c.hooked != o.ID && hasPreStop(c.spec)
		m.announce(c, o, message)
	}
	m.ask(op)
}

// announce tells by an event that an attempt of a container is being stopped.
func (m *Machine) announce(c *container, o *Container, message string) {
	if c.announced != o.ID {
		c.announced = o.ID
		m.event(corev1.EventTypeNormal, reasonKilling, message, c)
	}
}

func hasPreStop(c *corev1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PreStop != nil }

// prune removes what need not be kept: of each container all attempts but the
// two newest (the older of them is for `logs --previous`), and sandboxes that
// are not the newest and hold no container any more.
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
		case c == nil || newer == 0:
		case o.State == Running || o.State == Unknown && !slices.Contains(m.stopped, o.ID):
			m.stop(c, o, m.specGrace(), fmt.Sprintf("Stopping container %s", o.Name))
		case newer > 1:
			m.ask(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt})
		}
	}
	for i := range m.observed.Sandboxes {
		s := &m.observed.Sandboxes[i]
		if i == 0 || slices.ContainsFunc(m.observed.Containers, func(c Container) bool { return c.SandboxID == s.ID }) {
			continue
		}
		if s.Ready || !slices.Contains(m.stopped, s.ID) {
			m.ask(Operation{Kind: StopSandbox, ID: s.ID, Attempt: s.Attempt})
			continue
		}
		m.ask(Operation{Kind: RemoveSandbox, ID: s.ID, Attempt: s.Attempt})
	}
}

// addresses are the pod's, one of each family at most, that of the node's
// primary address first.
func (m *Machine) addresses() []string {
	if m.pod.Spec.HostNetwork || len(m.observed.Sandboxes) == 0 || !m.observed.Sandboxes[0].Ready {
		return nil
	}
	six := len(m.options.HostIPs) > 0 && isSix(m.options.HostIPs[0])
	var first, second string
	for _, text := range m.observed.Sandboxes[0].IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if is6 := ip.Is6() && !ip.Is4In6(); is6 == six && first == "" {
			first = ip.Unmap().String()
		} else if is6 != six && second == "" {
			second = ip.Unmap().String()
		}
	}
	return slices.DeleteFunc([]string{first, second}, func(s string) bool { return s == "" })
}

func isSix(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is6() && !ip.Is4In6()
}
