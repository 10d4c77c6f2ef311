package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options are what a machine has to know of its node. The zero value works.
type Options struct {
	// HostIPs are the node's addresses, the primary one first, two at most.
	// Statuses name them; without them (standalone) they name none.
	HostIPs []string
	// MaxBackOff is the longest pause before a container that keeps ending is
	// started again (crashLoopBackOff.maxContainerRestartPeriod). Zero stands
	// for 5 minutes.
	MaxBackOff time.Duration
	// RecursiveReadOnly says that the runtime can make a mount read-only
	// recursively (KEP-3857).
	RecursiveReadOnly bool
}

// Machine is the state of one pod. It is not safe for use by several
// goroutines at once.
type Machine struct {
	options Options

	// What is wanted.
	pod      *corev1.Pod
	removed  bool
	rejected *verdict
	killed   *verdict
	overdue  bool
	// untried says that it was rejected before anything of it was made.
	untried bool

	// What is known.
	observed   Observed
	containers []container
	isSetUp    bool
	tornDown   bool
	// known says that the runtime has been looked at.
	known bool
	// stopped are the sandboxes and containers that have been stopped.
	stopped []string
	// announced is the sandbox whose end has been told by an event.
	announced string

	// What goes on.
	flight  []Operation
	retries []retry
	// halting is when the containers began to be stopped for good, zero when
	// they are not.
	halting time.Time
	// haltGrace is how long they had then, grace the shortest that the pod has
	// been given.
	haltGrace, grace time.Duration
	// ended says that no container runs any more and none will.
	ended bool
	// stranded says that the pod has lost its sandbox and may not have a new
	// one, although some of it has not been run.
	stranded bool

	// What has been told. The phase is the one that the pod has come to; its
	// status shows one of the two last phases only when the pod has ended, and
	// is final then.
	status corev1.PodStatus
	phase  corev1.PodPhase
	final  bool
	// told is the status that the last call of Next returned.
	told corev1.PodStatus

	// Of one call of Next.
	now    time.Time
	start  []Operation
	events []Event
	wake   time.Time
}

// verdict is a decision from outside that the pod has failed.
type verdict struct {
	reason, message string
	// disruption is the message of the condition DisruptionTarget.
	disruption string
	grace      *int64
}

// New returns the machine of a pod that nothing is known about but its object.
// Of a pod that only the runtime knows, the object may be its metadata.
func New(pod *corev1.Pod, options Options) *Machine {
	if options.MaxBackOff == 0 {
		options.MaxBackOff = maxBackOff
	}
	m := &Machine{options: options, told: *pod.Status.DeepCopy(), phase: pod.Status.Phase}
	m.Update(pod)
	return m
}

// Update tells what the pod's object is now: its spec, its deletion, and the
// conditions in its status that belong to others. The machine only reads it.
func (m *Machine) Update(pod *corev1.Pod) {
	m.pod = pod
	m.containers = containersOf(pod, m.containers, &m.told)
	if !m.ended && isTerminal(pod.Status.Phase) {
		m.phase = pod.Status.Phase
	}
}

// Remove tells that the pod's source wants it no more.
func (m *Machine) Remove() { m.removed = true }

// Reject tells that the node does not admit the pod. Whoever decides so records
// the event.
func (m *Machine) Reject(reason, message string) {
	if m.rejected != nil {
		return
	}
	m.rejected = &verdict{reason: reason, message: "Pod was rejected: " + message}
	m.untried = !m.isSetUp && len(m.flight)+len(m.observed.Sandboxes) == 0 &&
		!slices.ContainsFunc(m.containers, func(c container) bool { return c.next > 0 })
}

// Kill evicts the pod: it fails for that reason; disruption is the message of its
// condition DisruptionTarget, empty where the pod itself is to blame and has
// none. Grace, in seconds, shortens its termination grace period, unless it is
// nil. Whoever decides so records the event.
func (m *Machine) Kill(reason, message, disruption string, grace *int64) {
	if m.killed == nil && !m.ended {
		m.killed = &verdict{reason: reason, message: message, disruption: disruption, grace: grace}
		return
	}
	if m.killed != nil && grace != nil && (m.killed.grace == nil || *grace < *m.killed.grace) {
		m.killed.grace = grace
	}
}

// Observe tells what the runtime holds of the pod. It comes before the first
// call of Next: a pod may have been run before.
func (m *Machine) Observe(observed Observed) {
	m.observed = observed
	m.forget()
	if !m.known && isTerminal(m.pod.Status.Phase) {
		// It had come to its end before the agent started.
		for _, s := range observed.Sandboxes {
			if !s.Ready {
				m.stopped = append(m.stopped, s.ID)
			}
		}
	}
	for i := range m.containers {
		m.containers[i].observe(m)
	}
	m.known = true
}

// Done tells what has become of an operation.
func (m *Machine) Done(operation Operation, result Result) {
	if i := slices.Index(m.flight, operation); i >= 0 {
		m.flight = slices.Delete(m.flight, i, i+1)
	}
	if result.Cancelled || operation.Kind == Cancel {
		return
	}
	failed := result.Reason != ""
	if operation.Kind == StartContainer {
		if c := m.container(operation.Name); c != nil {
			c.outcome, c.tried = &result, operation.Attempt
		}
		return
	}
	m.settle(operation, failed)
	if c := m.container(operation.Name); c != nil && operation.Kind == PreStop {
		c.hooked = operation.ID
	}
	switch {
	case failed:
		m.event(corev1.EventTypeWarning, result.Reason, complaint(operation.Kind)+result.Message, nil)
	case operation.Kind == SetUp:
		m.isSetUp = true
	case operation.Kind == TearDown:
		m.isSetUp, m.tornDown = false, true
	case operation.Kind == StopSandbox, operation.Kind == StopContainer:
		m.stopped = append(m.stopped, operation.ID)
	}
}

// Probe tells what a probe has found.
func (m *Machine) Probe(result ProbeResult) {
	for i := range m.containers {
		if c := &m.containers[i]; c.id == result.ContainerID {
			c.probed(result)
		}
	}
}

// Next says what is to be done now. It may be called at any time; when nothing
// has happened since, it starts nothing.
func (m *Machine) Next(now time.Time) Output {
	m.now, m.start, m.wake = now, nil, time.Time{}
	for i := range m.containers {
		m.containers[i].started(m)
	}
	m.report()
	m.meetDeadline()
	released := false
	if m.ending() {
		released = m.end()
	} else {
		m.run()
		if m.stranded {
			released = m.end()
		}
	}
	m.report()
	out := Output{
		Start:    m.start,
		Probes:   m.probes(),
		Status:   m.status,
		Events:   m.events,
		Wake:     m.wake,
		Ended:    m.ended,
		Released: released,
	}
	m.events, m.told = nil, m.status
	return out
}

// ending says whether the pod is on its way out.
func (m *Machine) ending() bool {
	return m.removed || m.rejected != nil || m.killed != nil || m.overdue || m.stranded || m.ended ||
		m.pod.DeletionTimestamp != nil || isTerminal(m.phase)
}

// meetDeadline fails a pod that has been active for longer than its
// activeDeadlineSeconds.
func (m *Machine) meetDeadline() {
	seconds := m.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || m.overdue || m.ended || m.status.StartTime == nil || isTerminal(m.phase) {
		return
	}
	deadline := m.status.StartTime.Add(Seconds(*seconds))
	if deadline.After(m.now) {
		m.wakeAt(deadline)
		return
	}
	m.overdue = true
	m.event(corev1.EventTypeNormal, reasonDeadline, messageDeadline, nil)
}

// event records one about the pod, or about one of its containers.
func (m *Machine) event(kind, reason, message string, c *container) {
	e := Event{Type: kind, Reason: reason, Message: message}
	if c != nil {
		e.Container = c.spec.Name
	}
	m.events = append(m.events, e)
}

// complaint is how the event of an operation that failed begins.
func complaint(k Kind) string {
	switch k {
	case CreateSandbox:
		return "Failed to create pod sandbox: "
	case StopContainer, StopSandbox:
		return "error killing pod: "
	default:
		return ""
	}
}

// wakeAt asks for another call of Next at that time.
func (m *Machine) wakeAt(t time.Time) {
	if m.wake.IsZero() || t.Before(m.wake) {
		m.wake = t
	}
}
