package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// Options are the settings of the node. The zero value works.
type Options struct {
	// WithoutHostIPs leaves status.hostIPs empty, WithoutReadyToStart leaves out the
	// condition PodReadyToStartContainers.
	WithoutHostIPs, WithoutReadyToStart bool
	// WithoutResize leaves the resources of running containers as they are, and out of
	// their statuses. Resized reports that an earlier agent has changed them: those of
	// containers may be others than they were created with.
	WithoutResize, Resized bool
	// WithoutInitResize leaves the resources of init containers other than sidecars as they
	// are.
	WithoutInitResize bool
	// WithoutRestartAll does not restart all containers of a pod by a rule of one.
	WithoutRestartAll bool
	// MaxBackOff is the longest CrashLoopBackOff
	// (crashLoopBackOff.maxContainerRestartPeriod). Zero means 5 minutes.
	MaxBackOff time.Duration
	// DeadContainers is how many terminated attempts of each container are kept besides
	// the newest attempt (--maximum-dead-containers-per-container), -1 for all and nil
	// for one; DeadContainerTTL is how long they are kept in any case
	// (--minimum-container-ttl-duration).
	DeadContainers   *int
	DeadContainerTTL time.Duration
	// KeepVolumes keeps the volumes of a pod that has ended until it is deleted
	// (--keep-terminated-pod-volumes).
	KeepVolumes bool
}

// Node is what the status of a pod shows of its node. It may change while the pod runs.
type Node struct {
	// HostIPs are the node's addresses, the primary one first, at most two; none while they
	// are not known. They must not be modified.
	HostIPs []string
	// RecursiveReadOnly reports whether the runtime supports recursive read-only
	// mounts (KEP-3857).
	RecursiveReadOnly bool
}

// Machine is the state machine of one pod. It is not safe for concurrent use.
type Machine struct {
	options Options
	node    Node
	// six reports that the pod's IPv6 address comes first.
	six bool

	// Desired state.
	pod      *corev1.Pod
	removed  bool
	rejected *podFailure
	killed   *podFailure
	overdue  bool
	// neverStarted reports that the pod was rejected before any of it was created.
	neverStarted bool

	resizing

	// Observed state.
	observed   Observed
	expendable map[string]bool // attempts of containers that are not kept any more
	containers []container
	isSetUp    bool
	tornDown   bool
	// hasObserved reports that the runtime has been observed at least once.
	hasObserved bool
	// restartingAll reports that all containers are being removed, in order to start again.
	restartingAll bool
	// stopped are the IDs of sandboxes and containers that have been stopped.
	stopped []string
	// sandboxEventFor is the sandbox for whose loss an event has been recorded.
	sandboxEventFor string

	// Operations in flight.
	operations []Operation
	retries    []retry
	// stale reports that API objects changed while the pod was being set up.
	stale bool
	// halting is when the containers began to be stopped for good, or zero.
	halting time.Time
	// haltGrace is the grace period that they had then, grace the shortest one that
	// the pod has been given.
	haltGrace, grace time.Duration
	// ended reports that no container runs and none will be started.
	ended bool
	// cannotRecover reports that the pod has lost its sandbox and must not get a new one,
	// although some of its containers have not run.
	cannotRecover bool

	// Reported state. The phase is the one that the machine has decided on; the status
	// shows Succeeded or Failed, which are final, only after the pod has ended.
	status corev1.PodStatus
	phase  corev1.PodPhase
	final  bool
	// reported is the status that the last call of Next returned.
	reported corev1.PodStatus

	// Valid during one call of Next.
	now    time.Time
	start  []Operation
	events []Event
	wake   time.Time
}

// podFailure is a decision from outside that the pod has failed: rejection, eviction,
// or a deadline.
type podFailure struct {
	reason, message string
	// disruption is the message of the condition DisruptionTarget.
	disruption string
	grace      *int64
}

// New returns the machine of a pod of which only the object is known. For a pod
// that only the runtime knows, the object may consist of metadata.
func New(pod *corev1.Pod, options Options) *Machine {
	if options.MaxBackOff == 0 {
		options.MaxBackOff = maxBackOff
	}
	m := &Machine{options: options, reported: *pod.Status.DeepCopy(), phase: pod.Status.Phase}
	m.Update(pod)
	return m
}

// Update sets the pod's current object: its spec, its deletion, and conditions of
// other writers. The machine only reads it.
func (m *Machine) Update(pod *corev1.Pod) {
	m.pod = pod
	m.containers = containersOf(pod, m.containers, &m.reported)
	for i := range m.containers {
		m.containers[i].wholePod = !m.options.WithoutRestartAll
	}
	if !m.ended && podspec.IsTerminal(pod.Status.Phase) {
		m.phase = pod.Status.Phase
	}
}

// SetNode sets what the status shows of the node. A node that has no addresses any more keeps
// those that it had, until it has others.
func (m *Machine) SetNode(node Node) {
	switch known := m.node.HostIPs; {
	case len(node.HostIPs) == 0:
		node.HostIPs = known
	case len(known) == 0:
		m.six = isSix(node.HostIPs[0]) // for good: a running pod with a network of its own keeps its primary address
	}
	m.node = node
}

// Remove marks the pod as no longer desired by its source.
func (m *Machine) Remove() { m.removed = true }

// Reject marks the pod as not admitted by the node. The caller records the event.
func (m *Machine) Reject(reason, message string) {
	if m.rejected != nil {
		return
	}
	m.rejected = &podFailure{reason: reason, message: "Pod was rejected: " + message}
	m.neverStarted = !m.isSetUp && len(m.operations)+len(m.observed.Sandboxes) == 0 &&
		!slices.ContainsFunc(m.containers, func(c container) bool { return c.next > 0 })
}

// Kill terminates the pod as Failed with this reason. disruption is the message of
// its condition DisruptionTarget, empty if the pod itself is the cause and gets no
// such condition. grace, in seconds, shortens the termination grace period unless
// it is nil. The caller records the event.
func (m *Machine) Kill(reason, message, disruption string, grace *int64) {
	if m.killed == nil && !m.ended {
		m.killed = &podFailure{reason: reason, message: message, disruption: disruption, grace: grace}
		return
	}
	if m.killed != nil && grace != nil && (m.killed.grace == nil || *grace < *m.killed.grace) {
		m.killed.grace = grace
	}
}

// Expend sets the terminated attempts of containers, by their IDs, that are removed
// although the options keep them. The newest one of a container is kept unless the pod has
// ended.
func (m *Machine) Expend(ids map[string]bool) { m.expendable = ids }

// Observe sets what the runtime holds of the pod. It must be called before the
// first call of Next, because the pod may have run before.
func (m *Machine) Observe(observed Observed) {
	m.observed = observed
	m.forget()
	if !m.hasObserved && podspec.IsTerminal(m.pod.Status.Phase) {
		// The pod had ended before the agent started.
		for _, s := range observed.Sandboxes {
			if !s.Ready {
				m.stopped = append(m.stopped, s.ID)
			}
		}
	}
	if !m.hasObserved {
		m.recallRestartAll()
	}
	for i := range m.containers {
		m.containers[i].observe(m)
	}
	if !m.hasObserved {
		m.recallRejection()
	}
	m.hasObserved = true
}

// recallRejection recognizes a pod that the agent rejected before it was restarted:
// it has failed with a reason, and none of it was ever created. Its status stays.
func (m *Machine) recallRejection() {
	s := &m.pod.Status
	created := len(s.InitContainerStatuses) + len(s.ContainerStatuses) + len(s.EphemeralContainerStatuses) +
		len(m.observed.Sandboxes) + len(m.observed.Containers)
	if s.Phase == corev1.PodFailed && s.Reason != "" && created == 0 {
		m.rejected = &podFailure{reason: s.Reason, message: s.Message}
		m.neverStarted, m.final = true, true
	}
}

// Done reports the result of an operation to the machine.
func (m *Machine) Done(operation Operation, result Result) {
	if i := slices.Index(m.operations, operation); i >= 0 {
		m.operations = slices.Delete(m.operations, i, i+1)
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
	m.recordOutcome(operation, failed)
	if operation.Kind == ResizePod || operation.Kind == ResizeContainer {
		m.resized(operation, result)
	}
	if c := m.container(operation.Name); c != nil && operation.Kind == PreStop {
		c.hooked = operation.ID
	}
	switch {
	case failed:
		m.event(corev1.EventTypeWarning, result.Reason, failurePrefix(operation.Kind)+result.Message, nil)
		if result.Rejected {
			m.Reject(result.Reason, result.Message)
		}
	case operation.Kind == SetUp:
		m.isSetUp, m.raised = true, m.asked
		if !result.KeptMemory { // else the resize that follows sets the limit
			m.size = m.asked
		}
	case operation.Kind == TearDown:
		m.isSetUp, m.tornDown = false, true
	case operation.Kind == StopSandbox, operation.Kind == StopContainer:
		m.stopped = append(m.stopped, operation.ID)
	}
}

// ObjectsChanged reports that API objects have changed to which the pod refers. What has
// failed, perhaps for the want of them, is tried again at once: the volumes, and
// containers whose environment could not be made.
func (m *Machine) ObjectsChanged() {
	m.stale = m.inFlight(SetUp, "")
	m.retries = slices.DeleteFunc(m.retries, func(r retry) bool { return r.kind == SetUp })
	for i := range m.containers {
		c := &m.containers[i]
		_, starting := m.starting(c.spec.Name)
		c.stale = starting || c.outcome != nil
		if c.reason == reasonConfig {
			c.retry = time.Time{}
		}
	}
}

// Probe reports the result of a probe to the machine.
func (m *Machine) Probe(result ProbeResult) {
	for i := range m.containers {
		if c := &m.containers[i]; c.id == result.ContainerID {
			c.probed(result)
		}
	}
}

// Next returns what is to be done now. It may be called at any time; if nothing
// has happened since the last call, it starts nothing.
func (m *Machine) Next(now time.Time) Output {
	m.now, m.start, m.wake = now, nil, time.Time{}
	for i := range m.containers {
		m.containers[i].started(m)
	}
	m.report()
	m.meetDeadline()
	released := false
	if m.isTerminating() {
		released = m.end()
	} else {
		m.run()
		if m.cannotRecover {
			released = m.end()
		}
	}
	m.report()
	out := Output{
		Start:    m.start,
		Probes:   m.activeProbes(),
		Status:   m.status,
		Events:   m.events,
		Wake:     m.wake,
		Ended:    m.ended,
		Released: released,
	}
	m.events, m.reported = nil, m.status
	return out
}

// isTerminating reports whether the pod is terminating.
func (m *Machine) isTerminating() bool {
	return m.removed || m.rejected != nil || m.killed != nil || m.overdue || m.cannotRecover || m.ended ||
		m.pod.DeletionTimestamp != nil || podspec.IsTerminal(m.phase)
}

// meetDeadline fails a pod that has been active for longer than its
// activeDeadlineSeconds.
func (m *Machine) meetDeadline() {
	seconds := m.pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || m.overdue || m.ended || m.status.StartTime == nil || podspec.IsTerminal(m.phase) {
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

// event records an event about the pod, or about one of its containers.
func (m *Machine) event(kind, reason, message string, c *container) {
	e := Event{Type: kind, Reason: reason, Message: message}
	if c != nil {
		e.Container = c.spec.Name
	}
	m.events = append(m.events, e)
}

// failurePrefix returns how the event message of a failed operation begins.
func failurePrefix(k Kind) string {
	switch k {
	case CreateSandbox:
		return "Failed to create pod sandbox: "
	case StopContainer, StopSandbox:
		return "error killing pod: "
	default:
		return ""
	}
}

// wakeAt asks for another call of Next at t.
func (m *Machine) wakeAt(t time.Time) {
	if m.wake.IsZero() || t.Before(m.wake) {
		m.wake = t
	}
}
