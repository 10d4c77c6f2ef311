package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// minBackOff is the first back-off of a container that crashes and of an image
	// that cannot be pulled. The back-off doubles with each further failure.
	minBackOff = 10 * time.Second
	// maxBackOff is the longest back-off.
	maxBackOff = 5 * time.Minute
	// startRetry is the back-off after a container could not be created.
	startRetry = 10 * time.Second
	// pullShown is how long a status shows the reason of a failed pull
	// ("ErrImagePull") before it shows that the next pull waits ("ImagePullBackOff").
	pullShown = time.Second
)

// pullBackOff is the ImagePullBackOff of a container.
type pullBackOff struct {
	delay time.Duration
	// failed is when the last pull failed, cause its error.
	failed time.Time
	cause  string
}

// fail lengthens the back-off and returns its end.
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

// inStartBackOff reports whether a container must wait because it recently failed
// to start.
func (m *Machine) inStartBackOff(c *container) bool {
	if limit := m.now.Add(max(startRetry, c.pull.delay)); c.retry.After(limit) {
		c.retry = limit // the clock was set back
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

// isPullFailure reports whether a container could not be started because its image
// could not be pulled.
func isPullFailure(reason string) bool {
	switch reason {
	case reasonPull, reasonPullBackOff, "RegistryUnavailable", "SignatureValidationFailed":
		return true
	default:
		return false
	}
}

// title returns the pod's name for messages.
func (m *Machine) title() string {
	return fmt.Sprintf("%s_%s(%s)", m.pod.Name, m.pod.Namespace, m.pod.UID)
}
