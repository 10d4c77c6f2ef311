package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"svc.dev/svc/apis/podspec"
)

// PendingResize says why the resources that a pod's object asks for have not been
// allocated (KEP-1287).
type PendingResize struct {
	// Reason is corev1.PodReasonDeferred or corev1.PodReasonInfeasible.
	Reason, Message string
}

// Pend sets why a resize of the pod is pending; nil means that none is.
func (m *Machine) Pend(p *PendingResize) { m.pending = p }

// resizing is the state of a machine with regard to the resources of its pod, which
// change in place. The object that the machine has is the pod as it was allocated.
type resizing struct {
	pending *PendingResize
	// size is that of the pod's cgroup, raised the one that it has been raised for:
	// its limits are then the larger ones of both. Both are of sizeOf.
	size, raised string
	// asked is the size that the operation in flight on the cgroup gives it.
	asked string
	// problem is the message of the last operation that failed.
	problem string
	// underWay reports that an event has been recorded for the start, and that one for
	// the end is due.
	underWay bool
}

// sizeOf returns the CPU and memory of a pod in a form that can be compared.
func sizeOf(p *corev1.Pod) string {
	var b strings.Builder
	list := func(name string, l corev1.ResourceList) {
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := l[resource]; ok {
				fmt.Fprintf(&b, " %s %s %s", name, resource, q.String())
			}
		}
	}
	if r := p.Spec.Resources; r != nil {
		list("requests", r.Requests)
		list("limits", r.Limits)
	}
	for _, c := range podspec.NonEphemeral(&p.Spec) {
		fmt.Fprintf(&b, " %s:", c.Name)
		list("requests", c.Resources.Requests)
		list("limits", c.Resources.Limits)
	}
	return b.String()
}

// resize brings the pod's cgroup and its running containers to the resources of the
// pod: first it raises the limits of the cgroup that become larger, then it changes
// the containers, and then it sets all limits of the cgroup.
func (m *Machine) resize() {
	if m.options.WithoutResize {
		return
	}
	if !m.isResizing() {
		m.resizeEnded()
		return
	}
	if !m.underWay {
		m.underWay = true
		m.event(corev1.EventTypeNormal, reasonResizeStarted, "Pod resize started", nil)
	}
	wanted := sizeOf(m.pod)
	if m.size != wanted && m.raised != wanted {
		m.requestCgroup(Operation{Kind: ResizePod, Grow: true}, wanted)
		return
	}
	settled := true
	for i := range m.containers {
		c := &m.containers[i]
		o := m.outgrown(c)
		if o == nil {
			continue
		}
		settled = false
		if !m.restartsToResize(c) && !m.stopping(c) {
			op := Operation{Kind: ResizeContainer, ID: o.ID, Name: c.spec.Name, Attempt: o.Attempt}
			if !m.inFlight(ResizeContainer, o.ID) {
				c.resizingTo, c.inheriting = c.spec.Resources.DeepCopy(), podspec.PodLimits(m.pod)
			}
			m.request(op)
		}
	}
	if settled && (m.size != wanted || m.raised != wanted) {
		m.requestCgroup(Operation{Kind: ResizePod}, wanted)
	}
}

// requestCgroup requests an operation on the pod's cgroup.
func (m *Machine) requestCgroup(o Operation, wanted string) {
	if !m.inFlight(ResizePod, "") {
		m.asked = wanted
	}
	m.request(o)
}

// resizeEnded records the event of a resize that has been completed.
func (m *Machine) resizeEnded() {
	m.problem = ""
	if m.underWay {
		m.underWay = false
		m.event(corev1.EventTypeNormal, reasonResizeCompleted, "Pod resize completed", nil)
	}
}

// isResizing reports whether the cgroup or a running container has other resources
// than the pod.
func (m *Machine) isResizing() bool {
	if m.options.WithoutResize || !m.isSetUp || m.ended {
		return false
	}
	if wanted := sizeOf(m.pod); m.size != wanted || m.raised != wanted { // a resize that was taken back may have raised the cgroup
		return true
	}
	for i := range m.containers {
		if m.outgrown(&m.containers[i]) != nil {
			return true
		}
	}
	return false
}

// outgrown returns the running attempt of a container that has other resources than
// the pod; nil if there is none.
func (m *Machine) outgrown(c *container) *Container {
	if c.role == ephemeral || c.role == initial && m.options.WithoutInitResize || m.options.WithoutResize {
		return nil
	}
	newest, _ := m.attempts(c)
	if newest == nil || newest.State != Running || newest.ID != c.id || m.fits(c) {
		return nil
	}
	return newest
}

// fits reports whether the running attempt has the resources of the pod.
func (m *Machine) fits(c *container) bool { return !c.doubtful && len(m.toResize(c)) == 0 }

// toResize returns which of CPU and memory the running attempt has other than the pod, with the
// limits that it has from the pod as a whole.
func (m *Machine) toResize(c *container) []corev1.ResourceName {
	if c.sized == nil {
		return nil
	}
	return changedCompute(withLimits(c.sized, c.inherited), withLimits(&c.spec.Resources, podspec.PodLimits(m.pod)))
}

// withLimits returns the resources of a container with the limits that it has from its pod.
func withLimits(own *corev1.ResourceRequirements, pod corev1.ResourceList) *corev1.ResourceRequirements {
	if len(pod) == 0 {
		return own
	}
	return &corev1.ResourceRequirements{Limits: podspec.ComputeLimits(own.Limits, pod), Requests: own.Requests}
}

// changedCompute returns which of CPU and memory differ.
func changedCompute(a, b *corev1.ResourceRequirements) []corev1.ResourceName {
	var changed []corev1.ResourceName
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		for _, lists := range [][2]corev1.ResourceList{{a.Requests, b.Requests}, {a.Limits, b.Limits}} {
			if x, y := lists[0][name], lists[1][name]; !apiequality.Semantic.DeepEqual(x, y) {
				changed = append(changed, name)
				break
			}
		}
	}
	return changed
}

// restartsToResize reports whether a resource that has changed demands a restart of
// the container (resizePolicy). An init container that is not a sidecar is never restarted: the
// API server refuses such a resize.
func (m *Machine) restartsToResize(c *container) bool {
	if c.role == initial {
		return false
	}
	for _, name := range m.toResize(c) {
		for _, p := range c.spec.ResizePolicy {
			if p.ResourceName == name && p.RestartPolicy == corev1.RestartContainer {
				return true
			}
		}
	}
	return false
}

// mustRestartToResize reports whether a running attempt of a container is to be
// stopped now, to be started with other resources.
func (m *Machine) mustRestartToResize(c *container, o *Container) bool {
	wanted := sizeOf(m.pod)
	return m.outgrown(c) == o && m.restartsToResize(c) && (m.size == wanted || m.raised == wanted)
}

// resized processes the result of an operation that changed resources.
func (m *Machine) resized(o Operation, r Result) {
	if r.Reason != "" {
		m.problem = r.Message
		return
	}
	m.problem = ""
	switch c := m.container(o.Name); {
	case o.Kind == ResizePod && o.Grow:
		m.raised = m.asked
	case o.Kind == ResizePod:
		m.size, m.raised = m.asked, m.asked
	case c != nil && c.id == o.ID:
		c.sized, c.inherited, c.doubtful = c.resizingTo, c.inheriting, false
	}
}

// resizeConditions returns the conditions that say how far a resize is.
func (m *Machine) resizeConditions() []corev1.PodCondition {
	var all []corev1.PodCondition
	if p := m.pending; p != nil && !m.isTerminating() {
		all = append(all, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: p.Reason, Message: p.Message})
	}
	if m.isResizing() && !m.isTerminating() {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}
		if m.problem != "" {
			c.Reason, c.Message = corev1.PodReasonError, m.problem
		}
		all = append(all, c)
	}
	return all
}

// resizeStatus returns status.resize, which release 1.28 has instead of conditions.
func (m *Machine) resizeStatus() corev1.PodResizeStatus {
	switch {
	case m.isTerminating():
		return ""
	case m.pending != nil && m.pending.Reason == corev1.PodReasonInfeasible:
		return corev1.PodResizeStatusInfeasible
	case m.pending != nil:
		return corev1.PodResizeStatusDeferred
	case m.isResizing():
		return corev1.PodResizeStatusInProgress
	default:
		return ""
	}
}
