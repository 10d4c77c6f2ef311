// Package syncloop owns the loop of what keeps a part of the machine's network as the API
// server's objects require: it collects events, syncs, retries and checks.
package syncloop

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

const (
	// minInterval is the time between two syncs, in which further events are collected.
	minInterval = 50 * time.Millisecond
	// RetryDelay is the time after which what failed is retried.
	RetryDelay = time.Second
	// checkInterval is the time between two checks: another program may have changed what
	// a sync wrote.
	checkInterval = time.Minute
	// generationInterval is the time between two reads of the generation.
	generationInterval = time.Second
)

// Loop calls Sync after changes and checks, never twice at once.
type Loop struct {
	Clock clock.WithTicker
	// Changed requests a sync. Signal makes it do so.
	Changed <-chan struct{}
	Signal  func()
	// Sync writes what has changed, and reports whether it has written all.
	Sync func(ctx context.Context) bool
	// Check looks, before a sync, for what another program has changed.
	Check func(ctx context.Context)
	// Generation, if not nil, is read each second. After a change of it Verify looks for
	// what another program has removed, and reports whether a sync has to write something
	// again: it is a number that any change of what Sync writes increases, also one by Sync.
	// While it cannot be read, Check is what finds and reports what is wrong. After an
	// error, Verify looks again a second later.
	Generation func() (uint32, error)
	Verify     func(ctx context.Context) (missing bool, err error)
}

// Run runs the loop until ctx is done.
func (l Loop) Run(ctx context.Context) {
	check := l.Clock.NewTicker(checkInterval)
	defer check.Stop()
	var read <-chan time.Time
	if l.Generation != nil {
		ticker := l.Clock.NewTicker(generationInterval)
		defer ticker.Stop()
		read = ticker.C()
	}
	var last uint32
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C():
			l.Check(ctx)
		case <-read:
			// What changes while Verify looks is found after the next read.
			generation, err := l.Generation()
			if err != nil || generation == last {
				continue
			}
			missing, err := l.Verify(ctx)
			if err == nil {
				last = generation
			}
			if !missing {
				continue
			}
		case <-l.Changed:
		}
		delay := minInterval
		if !l.Sync(ctx) {
			delay = RetryDelay
			l.Signal()
		}
		select {
		case <-ctx.Done():
			return
		case <-l.Clock.After(delay):
		}
	}
}
