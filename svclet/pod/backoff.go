package pod

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// minBackOff is the pause before a container is started again that has
	// ended twice, and before an image is pulled again; each further one is
	// twice as long.
	minBackOff = 10 * time.Second
	// maxBackOff is the longest of these pauses.
	maxBackOff = 5 * time.Minute
	// startRetry is the pause after a container could not be created.
	startRetry = 10 * time.Second
	// pullShown is how long a status tells that a pull has failed before it
	// tells that the next one is put off.
	pullShown = time.Second
)

// crashBackOff puts off the restart of a container that keeps ending.
type crashBackOff struct {
	delay time.Duration
	// since is when the container was last started again.
	since time.Time
	// held is when the wait for the present delay was first noticed, for the
	// attempt heldFor. It bounds the wait when the clock has been set back.
	held    time.Time
	heldFor string
}

// until returns when a container that ended at that time may start again; zero
// for at once. One that ran for twice the longest pause starts from scratch.
func (b *crashBackOff) until(ended time.Time, longest time.Duration) time.Time {
	if b.delay == 0 || ended.Sub(b.since) > 2*longest {
		return time.Time{}
	}
	return ended.Add(b.delay)
}

// next lengthens the pause after a container that ended at that time.
func (b *crashBackOff) next(ended, now time.Time, longest time.Duration) {
	if b.delay == 0 || ended.Sub(b.since) > 2*longest {
		b.delay = min(minBackOff, longest)
	} else {
		b.delay = min(2*b.delay, longest)
	}
	b.since = now
}

// infer finds out which pause was in force before the agent started: its status
// tells it while the container waits; afterwards the time between the two
// newest attempts does.
func (b *crashBackOff) infer(c *container, newest, previous *Container, longest time.Duration) {
	if b.delay != 0 {
		return
	}
	if c.reason == reasonCrashLoop {
		text := strings.TrimPrefix(c.message, "back-off ")
		text, _, _ = strings.Cut(text, " ")
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			b.delay, b.since = min(d, longest), newest.StartedAt
			return
		}
	}
	if previous == nil || previous.State != Exited {
		return
	}
	gap := newest.StartedAt.Sub(previous.FinishedAt)
	b.delay, b.since = min(minBackOff, longest), newest.StartedAt
	for b.delay < longest && 2*b.delay <= gap {
		b.delay = min(2*b.delay, longest)
	}
}

// heldByCrashes says whether a container that has ended must wait, and until
// when.
func (m *Machine) heldByCrashes(c *container, newest, previous *Container) bool {
	b, longest := &c.crash, m.options.MaxBackOff
	ended := newest
	if c.replaced == newest.ID && b.heldFor != newest.ID {
		// It has been stopped to be started again at once, unless that has
		// happened too often.
		ended = previous
	}
	if ended == nil || ended.State != Exited {
		return false
	}
	until := b.until(ended.FinishedAt, longest)
	if !until.After(m.now) {
		b.next(ended.FinishedAt, m.now, longest)
		return false
	}
	if b.heldFor != newest.ID {
		b.held, b.heldFor = m.now, newest.ID
		m.event(corev1.EventTypeWarning, reasonBackOff, fmt.Sprintf(
			"Back-off restarting failed container %s in pod %s", c.spec.Name, m.title()), c)
	}
	if b.held.After(m.now) {
		b.held = m.now
	}
	if newest.State == Exited && newest != ended {
		until = newest.FinishedAt.Add(b.delay)
	}
	if bound := b.held.Add(b.delay); until.After(bound) {
		until = bound
	}
	if !until.After(m.now) {
		b.next(ended.FinishedAt, m.now, longest)
		return false
	}
	c.reason = reasonCrashLoop
	c.message = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", b.delay, c.spec.Name, m.title())
	m.wakeAt(until)
	return true
}

// pullBackOff puts off the next pull of an image.
type pullBackOff struct {
	delay time.Duration
	// failed is when the last pull failed, cause what it said.
	failed time.Time
	cause  string
}

// fail lengthens the pause, and returns its end.
func (b *pullBackOff) fail(c *container, now time.Time) time.Time {
	if b.delay == 0 || now.Sub(b.failed) > 2*maxBackOff {
		b.delay = minBackOff
	} else {
		b.delay = min(2*b.delay, maxBackOff)
	}
	if c.reason != reasonPullBackOff {
		b.cause = c.reason + ": " + c.message
	}
	b.failed = now
	return now.Add(b.delay)
}

// heldByFailure says whether a container must wait because it could not be
// started a short while ago.
func (m *Machine) heldByFailure(c *container) bool {
	if limit := m.now.Add(max(startRetry, c.pull.delay)); c.retry.After(limit) {
		c.retry = limit // the clock has been set back
	}
	if !c.retry.After(m.now) {
		return false
	}
	m.wakeAt(c.retry)
	if c.pull.delay == 0 || c.reason == reasonPullBackOff {
		return true
	}
	shown := c.pull.failed.Add(pullShown)
	if shown.After(m.now) {
		m.wakeAt(shown)
		return true
	}
	text := fmt.Sprintf("Back-off pulling image %q", c.spec.Image)
	c.reason, c.message = reasonPullBackOff, text+": "+c.pull.cause
	m.event(corev1.EventTypeNormal, reasonBackOff, text, c)
	m.event(corev1.EventTypeWarning, reasonFailed, "Error: "+reasonPullBackOff, c)
	return true
}

// isPullFailure says whether a container could not be started because its
// image could not be pulled.
func isPullFailure(reason string) bool {
	switch reason {
	case reasonPull, reasonPullBackOff, "RegistryUnavailable", "SignatureValidationFailed":
		return true
	default:
		return false
	}
}

// title names the pod in messages.
func (m *Machine) title() string {
	return fmt.Sprintf("%s_%s(%s)", m.pod.Name, m.pod.Namespace, m.pod.UID)
}
