package storage

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimersOfCachesFireAtMultiplesOfTheStep(t *testing.T) {
	for _, c := range []struct {
		rule                   string
		since, timer, reset    time.Duration // since a full second
		fires, firesAfterReset time.Duration // since it was set
	}{
		{rule: "the nearest step, after", since: 100 * time.Millisecond, timer: 1100 * time.Millisecond, reset: 1200 * time.Millisecond,
			fires: 1150 * time.Millisecond, firesAfterReset: 1250 * time.Millisecond},
		{rule: "the nearest step, before", since: 700 * time.Millisecond, timer: time.Second, reset: 1124 * time.Millisecond,
			fires: 1050 * time.Millisecond, firesAfterReset: time.Second},
		{rule: "long timers", since: 10 * time.Millisecond, timer: 15 * time.Second, reset: 15 * time.Second,
			fires: 14990 * time.Millisecond, firesAfterReset: 15 * time.Second},
		{rule: "less than a second is not changed", since: 10 * time.Millisecond, timer: 100 * time.Millisecond, reset: 999 * time.Millisecond,
			fires: 100 * time.Millisecond, firesAfterReset: 999 * time.Millisecond},
	} {
		t.Run(c.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(c.since) // a bubble's time begins with a full second
				set := time.Now()
				timer := alignedClock{}.NewTimer(c.timer)
				if got := (<-timer.C()).Sub(set); got != c.fires {
					t.Errorf("a timer of %s fires after %s; want %s", c.timer, got, c.fires)
				}
				set = time.Now()
				timer.Reset(c.reset)
				if got := (<-timer.C()).Sub(set); got != c.firesAfterReset {
					t.Errorf("a timer reset to %s fires after %s; want %s", c.reset, got, c.firesAfterReset)
				}
			})
		})
	}
}
