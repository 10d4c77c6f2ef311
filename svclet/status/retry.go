package status

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// outage is what is known of an API server that does not answer.
type outage struct {
	// delay is zero while it answers.
	delay time.Duration
	timer clock.Timer
}

// The bounds of the time between two attempts to reach the API server.
const (
	minOutagePause = 100 * time.Millisecond
	maxOutagePause = 5 * time.Second
)

func (o *outage) stop() {
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
}

func (o *outage) end() {
	o.stop()
	o.delay = 0
}

// isAway says whether the error is about the API server rather than the pod.
func isAway(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return slices.Contains([]int32{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status.Status().Code)
}

// postpone puts all off until the API server may be back.
func (m *Manager) postpone(ctx context.Context, err error) {
	if m.away.timer != nil {
		return
	}
	if m.away.delay == 0 {
		klog.FromContext(ctx).Info("Failed to update pod statuses because the API server is not available, will retry", "err", err)
	}
	m.away.delay = min(max(2*m.away.delay, minOutagePause), maxOutagePause)
	m.away.timer = m.o.Clock.AfterFunc(m.away.delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.away.timer = nil
		m.dispatch()
	})
}

// failures are those of one pod's status, since it last could be written.
type failures struct {
	delay time.Duration
	timer clock.Timer
	said  string
}

// The bounds of the time between two attempts to write one status.
const (
	minRetryPause = 200 * time.Millisecond
	maxRetryPause = time.Minute
)

func (f *failures) stop() {
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
}

func (f *failures) reset() {
	f.stop()
	f.delay, f.said = 0, ""
}

// retry tries one pod again later, without holding up others.
func (m *Manager) retry(ctx context.Context, e *entry, err error) {
	logger := klog.FromContext(ctx).WithValues("podUID", e.uid)
	if e.api != nil {
		logger = logger.WithValues("pod", klog.KObj(e.api))
	}
	if said := err.Error(); said != e.failures.said {
		e.failures.said = said
		logger.Error(err, "Failed to update pod status, will retry")
	} else {
		logger.V(4).Info("Failed to update pod status again, will retry", "err", err)
	}
	e.failures.stop()
	e.failures.delay = min(max(2*e.failures.delay, minRetryPause), maxRetryPause)
	e.failures.timer = m.o.Clock.AfterFunc(e.failures.delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.failures.timer = nil
		m.enqueue(e)
	})
}
