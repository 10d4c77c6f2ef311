package pod

import (
	"math"
	"slices"
	"time"
)

// end terminates a pod: it stops containers and sandboxes, releases the pod's
// resources and, once the pod is no longer desired, removes everything that the
// runtime holds of it. It reports whether nothing is left.
func (m *Machine) end() (released bool) {
	if !m.halt(m.endGrace()) {
		return false
	}
	m.ended = true
	leaving := m.removed || m.killed != nil || m.pod.DeletionTimestamp != nil
	if !m.tornDown && (leaving || !m.options.KeepVolumes) {
		m.request(Operation{Kind: TearDown})
	}
	if leaving {
		m.clear()
	} else {
		m.prune()
	}
	return m.tornDown && len(m.observed.Sandboxes) == 0 && len(m.observed.Containers) == 0 && len(m.operations) == 0
}

// halt stops every container of the pod, sidecars after the containers that depend
// on them, and then its sandboxes. It reports whether nothing runs any more.
func (m *Machine) halt(total time.Duration) bool {
	if m.halting.IsZero() || m.halting.After(m.now) || total < m.haltGrace {
		m.halting, m.haltGrace = m.now, total
	}
	quiet := m.cancelStarts()
	left := total - m.now.Sub(m.halting)
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		if o.State != Running && (o.State != Unknown || slices.Contains(m.stopped, o.ID)) {
			continue
		}
		quiet = false
		if s, starting := m.starting(o.Name); starting && o.Attempt >= s.Attempt {
			continue
		}
		c := m.container(o.Name)
		inFlight := func(kind Kind) bool { // and is not to be replaced by one with a shorter grace period
			return slices.ContainsFunc(m.operations, func(f Operation) bool { return f.Kind == kind && f.ID == o.ID && f.Grace <= total })
		}
		if inFlight(StopContainer) {
			continue
		}
		message := "Stopping container " + o.Name
		if c == nil || c.role != sidecar || total <= 0 {
			m.stop(c, o, total, message)
			continue
		}
		m.recordKilling(c, o, message)
		if hasPreStop(c.spec) && c.hooked != o.ID && left > 0 && !inFlight(PreStop) {
			m.request(Operation{Kind: PreStop, ID: o.ID, Name: o.Name, Attempt: o.Attempt, Grace: left})
		}
		if left > 0 && (inFlight(PreStop) || m.hasDependents(c)) {
			m.wakeAt(m.halting.Add(total))
			continue
		}
		m.stop(c, o, max(left, 0), message)
	}
	if !quiet || m.inFlight(StopContainer, "") || m.inFlight(PreStop, "") {
		return false
	}
	for i := range m.observed.Sandboxes {
		if s := &m.observed.Sandboxes[i]; s.Ready || !slices.Contains(m.stopped, s.ID) {
			quiet = false
			m.request(Operation{Kind: StopSandbox, ID: s.ID, Attempt: s.Attempt})
		}
	}
	return quiet
}

// hasDependents reports whether a container still runs that must stop before the
// sidecar: a regular one, or a sidecar that was started after it (KEP-753).
func (m *Machine) hasDependents(c *container) bool {
	after := false
	for i := range m.containers {
		other := &m.containers[i]
		if other == c {
			after = true
			continue
		}
		if other.role != regular && (other.role != sidecar || !after) {
			continue
		}
		if slices.ContainsFunc(m.observed.Containers, func(o Container) bool {
			return o.Name == other.spec.Name && o.State == Running
		}) {
			return true
		}
	}
	return false
}

// cancelStarts cancels all starts in flight and reports whether there are none
// left.
func (m *Machine) cancelStarts() bool {
	quiet := true
	for i := range m.operations {
		switch o := m.operations[i]; o.Kind {
		case StartContainer, CreateSandbox:
			m.request(Operation{Kind: Cancel, Name: o.Name, Attempt: o.Attempt})
			quiet = false
		case Cancel:
			quiet = false
		}
	}
	return quiet
}

// clear removes everything that the runtime holds of the pod.
func (m *Machine) clear() {
	for i := range m.observed.Sandboxes {
		m.request(Operation{Kind: RemoveSandbox, ID: m.observed.Sandboxes[i].ID, Attempt: m.observed.Sandboxes[i].Attempt})
	}
	for i := range m.observed.Containers {
		o := &m.observed.Containers[i]
		if !slices.ContainsFunc(m.observed.Sandboxes, func(s Sandbox) bool { return s.ID == o.SandboxID }) {
			m.request(Operation{Kind: RemoveContainer, ID: o.ID, Name: o.Name, Attempt: o.Attempt})
		}
	}
}

// minGrace is the shortest termination grace period, whatever the pod asks for.
const minGrace = time.Second

// unsetGrace is the grace period of a pod without terminationGracePeriodSeconds,
// which API defaulting rules out.
const unsetGrace = 2 * time.Second

// maxSeconds is 68 years, the largest number of seconds that every runtime
// accepts.
const maxSeconds = math.MaxInt32

// Seconds converts a number of seconds from an API field to a duration, and
// saturates instead of overflowing.
func Seconds(n int64) time.Duration {
	return time.Duration(min(n, maxSeconds)) * time.Second
}

// specGrace returns the termination grace period of a container that is stopped
// while its pod goes on.
func (m *Machine) specGrace() time.Duration {
	if s := m.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return Seconds(*s)
	}
	return unsetGrace
}

// endGrace returns the termination grace period of the pod's containers now that
// the pod terminates: that of its deletion, else of its spec, or of its eviction
// if that is shorter. It never becomes longer. Containers of a pod without a spec
// have their own.
func (m *Machine) endGrace() time.Duration {
	var grace time.Duration
	switch {
	case m.pod.DeletionGracePeriodSeconds != nil:
		grace = Seconds(*m.pod.DeletionGracePeriodSeconds)
	case m.pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = Seconds(*m.pod.Spec.TerminationGracePeriodSeconds)
	default:
		for i := range m.observed.Containers {
			grace = max(grace, Seconds(m.observed.Containers[i].Grace))
		}
	}
	if m.killed != nil && m.killed.grace != nil {
		grace = min(grace, Seconds(*m.killed.grace))
	}
	grace = max(grace, minGrace)
	if m.grace == 0 || grace < m.grace {
		m.grace = grace
	}
	return m.grace
}
