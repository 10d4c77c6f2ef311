package storage

import (
	"time"

	"k8s.io/utils/clock"
)

// step is the time between two moments at which timers of the caches fire.
const step = 250 * time.Millisecond

// alignedClock is a clock whose timers of a second and more fire at multiples of
// step of the time of day. Every cache checks about once a second, after a random
// time, whether bookmarks are due: without alignment, 60 caches would wake an
// idle process 60 times a second.
type alignedClock struct{ clock.WithTicker }

// NewTimer implements clock.WithTicker.
func (c alignedClock) NewTimer(d time.Duration) clock.Timer {
	return alignedTimer{c.WithTicker.NewTimer(untilStep(c.Now(), d)), c}
}

type alignedTimer struct {
	clock.Timer
	clock clock.PassiveClock
}

// Reset implements clock.Timer.
func (t alignedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(untilStep(t.clock.Now(), d)) }

// untilStep returns the time from now until the step that is nearest to the end
// of d, or d if d is less than a second.
func untilStep(now time.Time, d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	now = now.Round(0) // without the monotonic reading: steps are of the time of day
	return now.Add(d).Round(step).Sub(now)
}
