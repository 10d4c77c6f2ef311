package storage

import (
	"time"

	"k8s.io/utils/clock"
)

// step is the time between two moments at which timers of the caches fire.
const step = 250 * time.Millisecond

// stepped is a clock whose timers of a second and more fire at full steps of
// the time of day. Every cache looks about once a second, after a time chosen
// by chance, whether bookmarks are due: 60 caches would wake an idle process 60
// times a second, each for itself.
type stepped struct{ clock.RealClock }

// NewTimer implements clock.WithTicker.
func (s stepped) NewTimer(d time.Duration) clock.Timer {
	return steppedTimer{s.RealClock.NewTimer(toStep(time.Now(), d))}
}

type steppedTimer struct{ clock.Timer }

// Reset implements clock.Timer.
func (t steppedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(toStep(time.Now(), d)) }

// toStep is the time from now until the step that is nearest to the end of d,
// or d if that is less than a second.
func toStep(now time.Time, d time.Duration) time.Duration {
	if d < time.Second {
		return d
	}
	now = now.Round(0) // the time of day, without what has passed since the start
	return now.Add(d).Round(step).Sub(now)
}
