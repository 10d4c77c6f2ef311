package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"svc.dev/svc/apis/podspec"
)

// role distinguishes init containers, sidecars, regular and ephemeral containers.
type role int

const (
	initial role = iota
	sidecar
	regular
	ephemeral
)

// probeOutcome is the last result of a probe.
type probeOutcome int8

const (
	nothing probeOutcome = iota
	success
	failure
)

// container is the machine's state of one container of the spec.
type container struct {
	spec *corev1.Container
	role role
	hash uint64
	// wholePod reports whether its rules may restart all containers of the pod.
	wholePod bool
	// next is the number of the next attempt, its restart count.
	next uint32

	// id is the container ID of the newest attempt; the probe results are about it.
	id                           string
	startup, readiness, liveness probeOutcome

	// outcome is the result of starting the attempt tried, until Next has processed
	// it.
	outcome *Result
	tried   uint32
	// reason and message are those of the waiting state in the status. They stay until
	// the container has been started.
	reason, message string
	// retry is when the container may be started again after a failed start.
	retry time.Time
	// stale reports that API objects changed while the container was being started.
	stale bool
	crash crashBackOff
	pull  pullBackOff

	// sized are the resources of the attempt id; resizingTo are those that the operation in flight sets. doubtful reports that an
	// earlier agent may have set others.
	sized, resizingTo *corev1.ResourceRequirements
	doubtful          bool
	// inherited are the limits of the pod as a whole that the attempt id has where it has none of its own;
	// inheriting are those of the operation in flight.
	inherited, inheriting corev1.ResourceList

	// discarded reports that its attempts are removed, or have been, in order to restart all
	// containers of the pod, and none has been started since.
	discarded bool
	// replaced is the ID of the attempt that is stopped in order to be restarted
	// whatever the restart policy.
	replaced string
	// killingEventFor is the attempt whose Killing event has been recorded, hooked the one
	// whose preStop hook has run before its stop.
	killingEventFor, hooked string
}

// containersOf returns the containers of a pod in start order, with the state that
// is known of them.
func containersOf(pod *corev1.Pod, known []container, status *corev1.PodStatus) []container {
	spec := &pod.Spec
	all := make([]container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	add := func(c *corev1.Container, r role, statuses []corev1.ContainerStatus) {
		hash := SpecHash(c)
		for i := range known {
			k := known[i]
			if k.spec.Name != c.Name || k.role != r {
				continue
			}
			if k.hash != hash {
				k.hash, k.crash, k.pull, k.retry = hash, crashBackOff{}, pullBackOff{}, time.Time{}
			}
			k.spec = c
			all = append(all, k)
			return
		}
		n := container{spec: c, role: r, hash: hash}
		n.restore(statusOf(statuses, c.Name))
		all = append(all, n)
	}
	for at, c := range podspec.All(spec) {
		switch {
		case podspec.IsSidecar(at.List, c):
			add(c, sidecar, status.InitContainerStatuses)
		case at.List == podspec.InitContainers:
			add(c, initial, status.InitContainerStatuses)
		case at.List == podspec.Containers:
			add(c, regular, status.ContainerStatuses)
		default:
			add(c, ephemeral, status.EphemeralContainerStatuses)
		}
	}
	return all
}

// restore restores, from the status that an earlier run of the agent wrote, what
// the runtime does not keep.
func (c *container) restore(status *corev1.ContainerStatus) {
	if status == nil {
		return
	}
	if status.ContainerID != "" || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
		c.next = uint32(status.RestartCount) + 1
	}
	w := status.State.Waiting
	if last := status.LastTerminationState.Terminated; w != nil && last != nil && last.Reason == reasonRestartingAll {
		c.next = uint32(status.RestartCount) // which counts the next start already
	}
	if w != nil && w.Reason != reasonCreating && w.Reason != reasonInitializing && w.Reason != reasonRestartingAll {
		c.reason, c.message = w.Reason, w.Message
	}
}

// observe updates the container from what the runtime reports.
func (c *container) observe(m *Machine) {
	newest, previous := attempts(m.observed.Containers, c.spec.Name)
	if newest == nil {
		c.id = ""
		return
	}
	c.next, c.discarded = max(c.next, newest.Attempt+1), c.discarded && m.restartingAll
	if _, starting := m.starting(c.spec.Name); newest.State == Running && !starting && c.outcome == nil {
		c.reason, c.message = "", ""
	}
	if newest.ID == c.id {
		return
	}
	c.id, c.startup, c.readiness, c.liveness = newest.ID, nothing, nothing, nothing
	c.inherited = podspec.PodLimits(m.pod)
	c.sized, c.doubtful = newest.CreatedWith, m.options.Resized && !m.hasObserved
	if c.sized == nil {
		c.sized = c.spec.Resources.DeepCopy()
	}
	if status := m.statusOf(c); status != nil && status.ContainerID == containerID(newest) {
		if status.Started != nil && *status.Started {
			c.startup = success
		}
		if status.Ready {
			c.readiness = success
		}
	}
	if !m.hasObserved {
		c.crash.infer(c, newest, previous, m.options.MaxBackOff)
	}
}

// started processes the result of an attempt to start the container.
func (c *container) started(m *Machine) {
	result := c.outcome
	if result == nil {
		return
	}
	stale := c.stale
	c.outcome, c.stale = nil, false
	if result.Reason == "" {
		c.reason, c.message, c.retry, c.pull = "", "", time.Time{}, pullBackOff{}
		return
	}
	c.reason, c.message = result.Reason, result.Message
	switch {
	case isPullFailure(result.Reason):
		c.retry = c.pull.fail(c, m.now)
	case stale && result.Reason == reasonConfig:
		c.retry = m.now
	case result.Reason == reasonPostStart, m.hasEndedAt(c, c.tried):
		// For the runtime the container has run: CrashLoopBackOff applies.
	default:
		c.retry = m.now.Add(startRetry)
	}
}

// hasEndedAt reports whether the newest attempt of a container has this number and
// has exited.
func (m *Machine) hasEndedAt(c *container, attempt uint32) bool {
	newest, _ := m.attempts(c)
	return newest != nil && newest.Attempt == attempt && newest.State == Exited
}

// probed processes the result of a probe.
func (c *container) probed(result ProbeResult) {
	found := failure
	if result.Success {
		found = success
	}
	switch {
	case result.Kind == Startup && c.spec.StartupProbe != nil:
		c.startup = found
	case result.Kind == Readiness && c.spec.ReadinessProbe != nil:
		c.readiness = found
	case result.Kind == Liveness && c.spec.LivenessProbe != nil:
		c.liveness = found
	}
}

// isStarted reports whether the running container has passed its startup probe.
func (c *container) isStarted() bool {
	return c.spec.StartupProbe == nil || c.startup == success
}

// isReady reports whether the started container is ready.
func (c *container) isReady() bool {
	return c.spec.ReadinessProbe == nil || c.readiness == success
}

// restarts reports whether the container is to be restarted after it exited with
// this code: by its restart rules, by its own restart policy, or by that of the
// pod.
func (c *container) restarts(pod *corev1.Pod, exitCode int32) bool {
	if c.spec.RestartPolicy != nil {
		switch action := matchRule(c.spec.RestartPolicyRules, exitCode); {
		case action == corev1.ContainerRestartRuleActionRestart,
			action == corev1.ContainerRestartRuleActionRestartAllContainers && c.wholePod:
			return true
		}
		return restartsBy(string(*c.spec.RestartPolicy), exitCode)
	}
	return restartsBy(string(pod.Spec.RestartPolicy), exitCode)
}

// restartsAllAfter reports whether all containers of the pod are to be restarted after the container
// exited with this code.
func (c *container) restartsAllAfter(exitCode int32) bool {
	return c.wholePod && matchRule(c.spec.RestartPolicyRules, exitCode) == corev1.ContainerRestartRuleActionRestartAllContainers
}

// restartsAfter reports whether the container is to be restarted after the attempt
// id exited, which includes an attempt that was stopped for that purpose.
func (c *container) restartsAfter(pod *corev1.Pod, id string, exitCode int32) bool {
	return c.replaced != "" && c.replaced == id || c.restarts(pod, exitCode)
}

// restartsKilled reports whether the container is to be restarted after a probe failed and
// it was stopped. Unlike for restartsAfter, there is no exit code yet.
func (c *container) restartsKilled(pod *corev1.Pod) bool {
	if c.spec.RestartPolicy != nil {
		return *c.spec.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

func restartsBy(policy string, exitCode int32) bool {
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return exitCode != 0
	default:
		return true
	}
}

// matchRule returns the action of the first restart rule that matches the exit
// code (KEP-5307), empty if none does.
func matchRule(rules []corev1.ContainerRestartRule, exitCode int32) corev1.ContainerRestartRuleAction {
	for _, r := range rules {
		if r.ExitCodes == nil {
			continue
		}
		within := slices.Contains(r.ExitCodes.Values, exitCode)
		if within == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return r.Action
		}
	}
	return ""
}

// SpecHash identifies the part of a container's spec that cannot change without a
// restart: its name and its image. The other fields are immutable or, as
// resources, changed in place. The value is the same as kubelet's, so that either
// agent adopts the other's containers.
func SpecHash(c *corev1.Container) uint64 {
	// Marshalling a map of two strings cannot fail.
	fields, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v", dump.ForHash(fields))
	return uint64(h.Sum32())
}

// container returns the container with this name.
func (m *Machine) container(name string) *container {
	for i := range m.containers {
		if m.containers[i].spec.Name == name {
			return &m.containers[i]
		}
	}
	return nil
}

// attempts returns the two newest attempts of a container.
func attempts(observed []Container, name string) (newest, previous *Container) {
	for i := range observed {
		if observed[i].Name != name {
			continue
		}
		if newest != nil {
			return newest, &observed[i]
		}
		newest = &observed[i]
	}
	return newest, nil
}

// attempts returns the two newest attempts of a container without the one that is
// being started: an attempt counts only once its postStart hook has succeeded.
func (m *Machine) attempts(c *container) (newest, previous *Container) {
	o, starting := m.starting(c.spec.Name)
	for i := range m.observed.Containers {
		a := &m.observed.Containers[i]
		if a.Name != c.spec.Name || starting && a.Attempt >= o.Attempt {
			continue
		}
		if newest != nil {
			return newest, a
		}
		newest = a
	}
	return newest, nil
}

// containerID returns the container's ID as statuses have it: RUNTIME://ID.
func containerID(c *Container) string { return c.Runtime + "://" + c.ID }
