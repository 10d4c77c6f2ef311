package syncloop

import (
	"context"
	"errors"
	"sync"
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

func TestAChangeOfTheGenerationIsFollowedByAVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		unreadable := errors.New("unreadable")
		var mu sync.Mutex
		var generation uint32
		var generationError, verifyError error
		var missing bool
		var syncs, verified int
		loop := Loop{
			Clock: clock.RealClock{}, Changed: make(chan struct{}), Signal: func() {},
			Sync: func(context.Context) bool {
				mu.Lock()
				defer mu.Unlock()
				syncs++
				return true
			},
			Check: func(context.Context) {},
			Generation: func() (uint32, error) {
				mu.Lock()
				defer mu.Unlock()
				return generation, generationError
			},
			Verify: func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				verified++
				return missing, verifyError
			},
		}
		go loop.Run(ctx)
		for _, step := range []struct {
			rule                         string
			generation                   uint32
			generationError, verifyError error
			missing                      bool
			verified, syncs              int // in this step
		}{
			{rule: "at the start", generation: 7, verified: 1},
			{rule: "no change", generation: 7},
			{rule: "a change of others", generation: 9, verified: 1},
			{rule: "rules are missing", generation: 10, missing: true, verified: 1, syncs: 1},
			{rule: "no change after it", generation: 10},
			{rule: "the generation cannot be read", generation: 11, generationError: unreadable},
			{rule: "it can be read again", generation: 11, verified: 1},
			{rule: "the rules cannot be read", generation: 12, verifyError: unreadable, verified: 2},
			{rule: "they can be read again", generation: 12, missing: true, verified: 1, syncs: 1},
		} {
			mu.Lock()
			generation, generationError, verifyError, missing = step.generation, step.generationError, step.verifyError, step.missing
			syncs, verified = 0, 0
			mu.Unlock()
			time.Sleep(2*generationInterval + minInterval)
			synctest.Wait()
			mu.Lock()
			if verified != step.verified || syncs != step.syncs {
				t.Errorf("%s: %d verifications and %d syncs, want %d and %d", step.rule, verified, syncs, step.verified, step.syncs)
			}
			mu.Unlock()
		}
	})
}
