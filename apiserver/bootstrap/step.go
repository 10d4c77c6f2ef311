package bootstrap

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Step keeps one thing true.
type Step struct {
	// Name is that of the server's post-start hook.
	Name string
	// Ensure makes the thing true. It does nothing if it is.
	Ensure func(ctx context.Context) error
	// Interval is the time between two calls of Ensure that succeeded; zero
	// is for a step that is done with the first.
	Interval time.Duration
	// Wake asks for a call before the interval has passed. It may be nil.
	Wake <-chan struct{}
	// Stop undoes, when the server ends, what would be untrue without it. It
	// may be nil.
	Stop func(ctx context.Context) error
}

const (
	// firstRetry and lastRetry bound the time after which a failed call is
	// repeated; it doubles from failure to failure.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// stopTimeout bounds Stop: a server that cannot reach its storage must
	// end nevertheless.
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

// Keep calls Ensure from time to time until the context ends, and then Stop.
// The first call is due after the interval.
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

// afterFailure is when to try again after so many failures before this one.
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

// pause waits until the delay has passed or somebody wakes the step. It
// returns an error if the context ends before.
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
