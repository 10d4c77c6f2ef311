package syncloop

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestTheLoopCollectsRetriesAndChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed := make(chan struct{}, 1)
		signal := func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		var fail atomic.Bool
		var syncs, checks atomic.Int32
		loop := Loop{
			Clock: clock.RealClock{}, Changed: changed, Signal: signal,
			Sync:  func(context.Context) bool { syncs.Add(1); return !fail.Load() },
			Check: func(context.Context) { checks.Add(1) },
		}
		go loop.Run(ctx)
		expect := func(rule string, wantSyncs, wantChecks int32) {
			t.Helper()
			synctest.Wait()
			if syncs.Load() != wantSyncs || checks.Load() != wantChecks {
				t.Errorf("%s: %d syncs and %d checks, want %d and %d", rule, syncs.Load(), checks.Load(), wantSyncs, wantChecks)
			}
		}
		expect("nothing has changed", 0, 0)
		signal()
		expect("a change", 1, 0)
		signal()
		signal()
		expect("changes soon after a sync wait", 1, 0)
		time.Sleep(minInterval)
		expect("and are collected", 2, 0)
		time.Sleep(minInterval)
		fail.Store(true)
		signal()
		expect("a failure", 3, 0)
		fail.Store(false)
		time.Sleep(RetryDelay)
		expect("is retried", 4, 0)
		time.Sleep(checkInterval)
		expect("a check comes with a sync", 5, 1)
		cancel()
	})
}

func TestAChangeOfTheGenerationIsFollowedByOneVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var generation, unreadable atomic.Uint32
		generation.Store(7)
		var syncs, verified atomic.Int32
		loop := Loop{
			Clock: clock.RealClock{}, Changed: make(chan struct{}), Signal: func() {},
			Sync: func(context.Context) bool { syncs.Add(1); return true }, Check: func(context.Context) {},
			Generation: func() (uint32, error) {
				if unreadable.Load() > 0 {
					return generation.Load(), errors.New("unreadable")
				}
				return generation.Load(), nil
			},
			Verify: func(context.Context) { verified.Add(1) },
		}
		go loop.Run(ctx)
		for _, step := range []struct {
			rule             string
			next, unreadable uint32
			want             int32
		}{{"at the start", 7, 0, 1}, {"none", 7, 0, 1}, {"a change", 9, 0, 2}, {"none after it", 9, 0, 2}, {"an error", 10, 1, 2}, {"its end", 10, 0, 3}} {
			generation.Store(step.next)
			unreadable.Store(step.unreadable)
			time.Sleep(2 * generationInterval)
			synctest.Wait()
			if verified.Load() != step.want || syncs.Load() != step.want {
				t.Errorf("%s: %d verifications and %d syncs, want %d", step.rule, verified.Load(), syncs.Load(), step.want)
			}
		}
	})
}
