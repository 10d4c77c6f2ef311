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

// outage is the back-off while the API server is not available.
type outage struct {
	// delay is zero while the API server answers.
	delay time.Duration
	timer clock.Timer
	// answers is the number of answers of the API server.
	answers int
}

// The bounds of the back-off of requests to an API server that is not available.
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
	o.answers++
}

// isUnavailable reports whether the error is about the API server and not about
// the pod.
func isUnavailable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return slices.Contains([]int32{http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status.Status().Code)
}

// postpone delays all requests until the end of the back-off.
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

// failures are the consecutive failures to write one pod's status.
type failures struct {
	delay time.Duration
	timer clock.Timer
	said  string
}

// The bounds of the back-off of one status.
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

// retry retries one pod later, without delaying others.
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
