package bootstrap

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Step keeps objects in their desired state.
type Step struct {
	// Name is that of the server's post-start hook.
	Name string
	// Ensure writes the objects that are not in their desired state.
	Ensure func(ctx context.Context) error
	// Interval is the time from a successful call of Ensure to the next; zero is
	// for a step that runs until its first success.
	Interval time.Duration
	// Wake receives a value when Ensure must be called before the interval has
	// passed. It may be nil.
	Wake <-chan struct{}
	// Stop removes, when the server stops, objects that are valid only while it
	// runs. It may be nil.
	Stop func(ctx context.Context) error
}

const (
	// firstRetry and lastRetry are the first and the longest backoff of a failed
	// call; it doubles with each failure.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// stopTimeout bounds Stop: a server that cannot reach its storage must still
	// stop.
	stopTimeout = 2 * time.Second
)

// First calls Ensure until it succeeds. It returns an error only if the context
// ends before.
func (s Step) First(ctx context.Context, clock clock.Clock) error {
	for failures := 0; ; failures++ {
		err := s.Ensure(ctx)
		if err == nil {
			return nil
		}
		if err := s.pause(ctx, clock, s.afterFailure(ctx, err, failures)); err != nil {
			return err
		}
	}
}

// Keep calls Ensure at the interval until the context is cancelled, and then Stop.
// The first call comes after the interval.
func (s Step) Keep(ctx context.Context, clock clock.Clock) {
	delay, failures := s.Interval, 0
	for s.pause(ctx, clock, delay) == nil {
		if err := s.Ensure(ctx); err != nil {
			delay = s.afterFailure(ctx, err, failures)
			failures++
		} else {
			delay, failures = s.Interval, 0
		}
	}
	if s.Stop == nil {
		return
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := s.Stop(stopping); err != nil {
		klog.FromContext(ctx).Error(err, "Bootstrap step did not stop cleanly", "step", s.Name)
	}
}

// afterFailure logs the error and returns the backoff after that many failures before it.
func (s Step) afterFailure(ctx context.Context, err error, failures int) time.Duration {
	delay := lastRetry
	if failures < 10 {
		delay = min(lastRetry, firstRetry<<failures)
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Bootstrap step failed, will retry", "step", s.Name, "retryAfter", delay)
	}
	return delay
}

// pause waits until the delay has passed or Wake has received a value. It returns
// an error if the context is cancelled before.
func (s Step) pause(ctx context.Context, clock clock.Clock, delay time.Duration) error {
	timer := clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
	case <-s.Wake:
	}
	return ctx.Err()
}
