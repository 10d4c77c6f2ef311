package pod

import corev1 "k8s.io/api/core/v1"

// activeProbes returns the probes that are to run: the startup probe until it has
// succeeded, and then the others. Only the readiness probe of a container that is
// being stopped goes on.
func (m *Machine) activeProbes() []Probe {
	var all []Probe
	ending := m.isTerminating() || !m.halting.IsZero()
	for i := range m.containers {
		c := &m.containers[i]
		if c.role != regular && c.role != sidecar {
			continue
		}
		o, _ := m.attempts(c)
		if o == nil || o.State != Running {
			continue
		}
		doomed := ending || m.inFlight(StopContainer, o.ID)
		add := func(kind ProbeKind, spec *corev1.Probe) {
			if spec != nil {
				all = append(all, Probe{
					Kind: kind, Container: c.spec.Name, ContainerID: o.ID, Spec: spec, Since: o.StartedAt,
				})
			}
		}
		switch {
		case c.isStarted():
			add(Readiness, c.spec.ReadinessProbe)
			if !doomed {
				add(Liveness, c.spec.LivenessProbe)
			}
		case !doomed:
			add(Startup, c.spec.StartupProbe)
		}
	}
	return all
}
