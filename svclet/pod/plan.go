package pod

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// plan is what is to happen to the containers of a pod whose sandbox is ready.
type plan struct {
	// start are the containers to start, in order.
	start []*container
	stop  []stop
	// kill means that everything that runs is to be stopped because the pod is
	// complete.
	kill bool
}

// stop is a container to stop although its pod goes on.
type stop struct {
	container *container
	observed  *Container
	grace     time.Duration
	message   string
}

// plan decides about the init containers and, once they have completed, about the
// others.
func (m *Machine) plan() plan {
	var p plan
	if m.isDone() {
		p.kill = true
		return p
	}
	if !m.planInit(&p) || p.kill {
		return p
	}
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular {
			continue
		}
		if _, starting := m.starting(c.spec.Name); starting {
			continue
		}
		newest, _ := m.attempts(c)
		switch {
		case newest != nil && newest.State == Running:
			message, grace := m.stopMessage(c, newest, "Container")
			if message == "" || m.inFlight(StopContainer, newest.ID) {
				continue
			}
			restart := newest.SpecHash != c.hash || m.mustRestartToResize(c, newest) || c.restartsKilled(m.pod)
			m.planStop(&p, c, newest, message, grace, restart)
		case m.restartDue(c, newest):
			m.planUnknown(&p, c, newest, "Container")
			p.start = append(p.start, c)
		}
	}
	return p
}

// isDone reports whether all regular containers have exited and none will be
// restarted. Sidecars do not keep a pod running.
func (m *Machine) isDone() bool {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular {
			continue
		}
		if _, starting := m.starting(c.spec.Name); starting {
			return false
		}
		newest, _ := m.attempts(c)
		if newest == nil || newest.State == Running || m.restartDue(c, newest) {
			return false
		}
	}
	return true
}

// stopMessage returns the message why a running container has to be stopped, "" if it
// need not be, and the grace period.
func (m *Machine) stopMessage(c *container, o *Container, what string) (string, time.Duration) {
	switch {
	case o.SpecHash != c.hash:
		return fmt.Sprintf("%s %s definition changed", what, c.spec.Name), m.specGrace()
	case m.mustRestartToResize(c, o):
		return fmt.Sprintf("%s %s resize requires restart", what, c.spec.Name), m.specGrace()
	case c.liveness == failure:
		return fmt.Sprintf("%s %s failed liveness probe", what, c.spec.Name), m.probeGrace(c.spec.LivenessProbe)
	case c.startup == failure:
		return fmt.Sprintf("%s %s failed startup probe", what, c.spec.Name), m.probeGrace(c.spec.StartupProbe)
	default:
		return "", 0
	}
}

// planStop stops a running container, and restarts it if restart allows that.
func (m *Machine) planStop(p *plan, c *container, o *Container, message string, grace time.Duration, restart bool) {
	if restart {
		c.replaced = o.ID
		if c.role == regular {
			message += ", will be restarted"
		}
	}
	p.stop = append(p.stop, stop{container: c, observed: o, grace: grace, message: message})
}

// planUnknown stops a container whose state the runtime does not know, before
// another attempt is started.
func (m *Machine) planUnknown(p *plan, c *container, o *Container, what string) {
	if o == nil || o.State != Unknown || slices.Contains(m.stopped, o.ID) {
		return
	}
	p.stop = append(p.stop, stop{container: c, observed: o, grace: m.specGrace(),
		message: fmt.Sprintf("%s is in %q state, try killing it before restart", what, o.State)})
}

// restartDue reports whether a container that does not run is to be started.
func (m *Machine) restartDue(c *container, newest *Container) bool {
	return newest == nil || newest.State != Exited || c.restartsAfter(m.pod, newest.ID, newest.ExitCode)
}

// planInit decides about the init containers, from the last to the first: a later
// one that has started shows that the earlier ones have completed, even if the
// runtime no longer has them. It reports whether the pod is initialized.
func (m *Machine) planInit(p *plan) bool {
	last := -1
	for i := range m.containers {
		if r := m.containers[i].role; r == initial || r == sidecar {
			last = i
		}
	}
	if last < 0 {
		return true
	}
	initialized := m.hasLiveRegular()
	past := initialized
	for i := last; i >= 0; i-- {
		c := &m.containers[i]
		newest, _ := m.attempts(c)
		_, starting := m.starting(c.spec.Name)
		if newest == nil && !starting {
			if past && c.role == sidecar {
				p.start = append(p.start, c)
			}
			continue
		}
		if past && c.role == initial {
			continue
		}
		done, fatal := false, false
		switch {
		case starting:
		case c.role == sidecar:
			done = m.planSidecar(p, c, newest)
		default:
			done, fatal = m.planInitial(p, c, newest)
		}
		if fatal {
			p.start, p.kill = nil, true
			return false
		}
		switch {
		case done && i == last:
			initialized = true
		case done && !past:
			p.start = append(p.start, &m.containers[i+1])
		}
		past = true
	}
	if !past {
		p.start = append(p.start, &m.containers[0])
	}
	slices.Reverse(p.start)
	p.start = slices.Compact(p.start)
	return initialized
}

// hasLiveRegular reports whether a regular container has been created and has not
// exited, which means that the pod has been initialized.
func (m *Machine) hasLiveRegular() bool {
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular {
			continue
		}
		if _, starting := m.starting(c.spec.Name); starting {
			return true
		}
		if newest, _ := m.attempts(c); newest != nil && (newest.State == Running || newest.State == Created) {
			return true
		}
	}
	return false
}

// planInitial decides about an init container that has been created: whether it
// has completed, and whether its failure fails the pod.
func (m *Machine) planInitial(p *plan, c *container, newest *Container) (done, fatal bool) {
	switch newest.State {
	case Running:
		return false, false
	case Exited:
		if newest.ExitCode == 0 {
			return true, false
		}
		if !c.restarts(m.pod, newest.ExitCode) {
			return false, true
		}
	case Unknown:
		if !c.restartsKilled(m.pod) {
			return false, true
		}
		m.planUnknown(p, c, newest, "Init container")
	case Created:
		// The container could not be started.
	}
	p.start = append(p.start, c)
	return false, false
}

// planSidecar decides about a restartable init container (KEP-753) that has been
// created, and reports whether the next init container may start.
func (m *Machine) planSidecar(p *plan, c *container, newest *Container) (done bool) {
	if newest.State != Running {
		m.planUnknown(p, c, newest, "Init container")
		p.start = append(p.start, c)
		return false
	}
	done = c.isStarted() && c.startup != failure
	message, grace := m.stopMessage(c, newest, "Init container")
	if message != "" && (done || c.startup == failure) && !m.inFlight(StopContainer, newest.ID) {
		m.planStop(p, c, newest, message, grace, true)
	}
	return done
}

// probeGrace returns the grace period of a container that is stopped because of a
// failed probe.
func (m *Machine) probeGrace(p *corev1.Probe) time.Duration {
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		return Seconds(*p.TerminationGracePeriodSeconds)
	}
	return m.specGrace()
}
