package bootstrap

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestFirstRetriesWithGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		step := Step{Name: "s", Interval: time.Hour, Ensure: func(context.Context) error {
			at = append(at, time.Since(start))
			if len(at) < 4 {
				return errors.New("not yet")
			}
			return nil
		}}
		if err := step.First(t.Context(), clock.RealClock{}); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 350 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("called at %v, want %v", at, want)
		}
	})
}

func TestFirstEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		failing := Step{Ensure: func(context.Context) error { return errors.New("never") }}
		if err := failing.First(ctx, clock.RealClock{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v", err)
		}
	})
}

func TestRunRepairsRetriesWakesAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		var at []time.Duration
		stopped := false
		step := Step{
			Name:     "s",
			Interval: time.Minute,
			Wake:     wake,
			Ensure: func(context.Context) error {
				at = append(at, time.Since(start))
				if len(at) == 2 {
					return errors.New("once")
				}
				return nil
			},
			Stop: func(ctx context.Context) error {
				stopped = ctx.Err() == nil
				return nil
			},
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := step.First(ctx, clock.RealClock{}); err != nil {
				t.Error(err)
				return
			}
			step.Keep(ctx, clock.RealClock{})
		}()
		time.Sleep(90 * time.Second)
		wake <- struct{}{}
		time.Sleep(45 * time.Second)
		cancel()
		<-done
		want := []time.Duration{0, time.Minute, time.Minute + firstRetry, 90 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("called at %v, want %v", at, want)
		}
		if !stopped {
			t.Error("Stop was not called with a live context")
		}
	})
}
