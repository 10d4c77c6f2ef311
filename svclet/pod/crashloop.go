package pod

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crashBackOff is the CrashLoopBackOff of a container that keeps exiting.
type crashBackOff struct {
	delay time.Duration
	// since is when the container was last restarted.
	since time.Time
	// held is when the machine first noticed that the attempt heldFor has to wait. It
	// bounds the wait when the clock is set back.
	held    time.Time
	heldFor string
}

// until returns when a container that exited at ended may be restarted; the zero
// time means at once. A container that ran for twice the longest back-off starts
// again from the first one.
func (b *crashBackOff) until(ended time.Time, longest time.Duration) time.Time {
	if b.delay == 0 || ended.Sub(b.since) > 2*longest {
		return time.Time{}
	}
	return ended.Add(b.delay)
}

// next lengthens the back-off after a container exited at ended.
func (b *crashBackOff) next(ended, now time.Time, longest time.Duration) {
	if b.delay == 0 || ended.Sub(b.since) > 2*longest {
		b.delay = min(minBackOff, longest)
	} else {
		b.delay = min(2*b.delay, longest)
	}
	b.since = now
}

// infer restores the back-off that was in force before the agent restarted: from
// the status while the container waits, and otherwise from the time between its
// two newest attempts.
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

// inCrashLoopBackOff reports whether an exited container is in CrashLoopBackOff, and
// asks for a call of Next at its end.
func (m *Machine) inCrashLoopBackOff(c *container, newest, previous *Container) bool {
	b, longest := &c.crash, m.options.MaxBackOff
	ended := newest
	if c.replaced == newest.ID && b.heldFor != newest.ID {
		// It was stopped in order to be restarted, which happens at once unless it has
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
