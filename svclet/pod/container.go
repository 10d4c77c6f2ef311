package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"
)

// role is what a container is for.
type role int

const (
	initial role = iota
	sidecar
	regular
	ephemeral
)

// finding is what a probe has found last.
type finding int8

const (
	nothing finding = iota
	success
	failure
)

// container is what the machine remembers of one container of the spec.
type container struct {
	spec *corev1.Container
	role role
	hash uint64
	// next is the attempt with which it will be created.
	next uint32

	// id is its newest attempt, which the findings are about.
	id                           string
	startup, readiness, liveness finding

	// outcome is that of the attempt tried, which Next has not seen yet.
	outcome *Result
	tried   uint32
	// reason and message say why it is not running: what its status says while
	// it waits. They stay until it has been started.
	reason, message string
	// retry is when it may be started after an attempt that failed.
	retry time.Time
	crash crashBackOff
	pull  pullBackOff

	// replaced is the attempt that is stopped to be started again, whatever the
	// restart policy.
	replaced string
	// announced is the attempt of which an event has told that it is being
	// stopped, hooked the one whose preStop hook has run ahead of its stop.
	announced, hooked string
}

// containersOf returns the containers of a pod in the order of their start,
// with what is remembered of them.
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
		n.recall(statusOf(statuses, c.Name))
		all = append(all, n)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		r := initial
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			r = sidecar
		}
		add(c, r, status.InitContainerStatuses)
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], regular, status.ContainerStatuses)
	}
	for i := range spec.EphemeralContainers {
		add((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), ephemeral,
			status.EphemeralContainerStatuses)
	}
	return all
}

// recall takes from the status that an earlier run of the agent has left what
// the runtime cannot tell.
func (c *container) recall(status *corev1.ContainerStatus) {
	if status == nil {
		return
	}
	if status.ContainerID != "" || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil {
		c.next = uint32(status.RestartCount) + 1
	}
	if w := status.State.Waiting; w != nil && w.Reason != reasonCreating && w.Reason != reasonInitializing {
		c.reason, c.message = w.Reason, w.Message
	}
}

// observe takes in what the runtime shows of the container.
func (c *container) observe(m *Machine) {
	newest, previous := attempts(m.observed.Containers, c.spec.Name)
	if newest == nil {
		c.id = ""
		return
	}
	c.next = max(c.next, newest.Attempt+1)
	if _, starting := m.starting(c.spec.Name); newest.State == Running && !starting && c.outcome == nil {
		c.reason, c.message = "", ""
	}
	if newest.ID == c.id {
		return
	}
	c.id, c.startup, c.readiness, c.liveness = newest.ID, nothing, nothing, nothing
	if status := m.statusOf(c); status != nil && status.ContainerID == containerID(newest) {
		if status.Started != nil && *status.Started {
			c.startup = success
		}
		if status.Ready {
			c.readiness = success
		}
	}
	if !m.known {
		c.crash.infer(c, newest, previous, m.options.MaxBackOff)
	}
}

// started takes in what has become of an attempt to start the container.
func (c *container) started(m *Machine) {
	result := c.outcome
	if result == nil {
		return
	}
	c.outcome = nil
	if result.Reason == "" {
		c.reason, c.message, c.retry, c.pull = "", "", time.Time{}, pullBackOff{}
		return
	}
	c.reason, c.message = result.Reason, result.Message
	switch {
	case isPullFailure(result.Reason):
		c.retry = c.pull.fail(c, m.now)
	case result.Reason == reasonPostStart, m.hasEndedAt(c, c.tried):
		// To the runtime the container has run: the back-off of those that end
		// decides.
	default:
		c.retry = m.now.Add(startRetry)
	}
}

// hasEndedAt says whether the newest attempt of a container is that one, and has
// ended.
func (m *Machine) hasEndedAt(c *container, attempt uint32) bool {
	newest, _ := m.attempts(c)
	return newest != nil && newest.Attempt == attempt && newest.State == Exited
}

// probed takes in what a probe has found.
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

// isStarted says whether the container, which is running, has passed its
// startup probe.
func (c *container) isStarted() bool {
	return c.spec.StartupProbe == nil || c.startup == success
}

// isReady says whether the container, which has started, is ready.
func (c *container) isReady() bool {
	return c.spec.ReadinessProbe == nil || c.readiness == success
}

// restarts says whether the container is to run again after it has ended with
// that exit code: by its own rules, its own policy, or that of its pod.
func (c *container) restarts(pod *corev1.Pod, exitCode int32) bool {
	if c.spec.RestartPolicy != nil {
		if restart, ok := matchRule(c.spec.RestartPolicyRules, exitCode); ok {
			return restart
		}
		return restartsBy(string(*c.spec.RestartPolicy), exitCode)
	}
	return restartsBy(string(pod.Spec.RestartPolicy), exitCode)
}

// restartsAfter says whether the container is to run again after that end, be
// it because it was ended to that purpose.
func (c *container) restartsAfter(pod *corev1.Pod, id string, exitCode int32) bool {
	return c.replaced != "" && c.replaced == id || c.restarts(pod, exitCode)
}

// restartsKilled says the same of one that is stopped because a probe failed:
// it has no exit code yet.
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

// matchRule returns what the first rule says that matches an exit code
// (KEP-5307).
func matchRule(rules []corev1.ContainerRestartRule, exitCode int32) (restart, ok bool) {
	for _, r := range rules {
		if r.ExitCodes == nil || r.Action != corev1.ContainerRestartRuleActionRestart {
			continue
		}
		within := slices.Contains(r.ExitCodes.Values, exitCode)
		if within == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true, true
		}
	}
	return false, false
}

// SpecHash identifies what a container was made of. Its name and image are all
// that may not change without a restart: the rest of a container's spec is
// immutable or, as its resources, changed in place. The value is kubelet's, so
// that each of the two adopts the containers of the other.
func SpecHash(c *corev1.Container) uint64 {
	// A map of two strings cannot fail to be marshalled.
	fields, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v", dump.ForHash(fields))
	return uint64(h.Sum32())
}

// container returns that of a name.
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

// attempts returns the two newest attempts of a container but for the one that
// is being started: until its postStart hook has succeeded it does not count.
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

// containerID is the identity of a container in statuses.
func containerID(c *Container) string { return c.Runtime + "://" + c.ID }
