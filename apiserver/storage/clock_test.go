package storage

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTimersOfCachesFireAtMultiplesOfTheStep(t *testing.T) {
	for _, c := range []struct {
		rule                   string
		since, timer, reset    time.Duration // since a full second
		fires, firesAfterReset time.Duration // after it was set
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
			fake := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0).Add(c.since))
			timer := alignedClock{fake}.NewTimer(c.timer)
			expectFires(t, fake, timer, c.fires)
			timer.Reset(c.reset)
			expectFires(t, fake, timer, c.firesAfterReset)
		})
	}
}

// expectFires fails the test unless the timer fires exactly after d.
func expectFires(t *testing.T, fake *clocktesting.FakeClock, timer clock.Timer, d time.Duration) {
	t.Helper()
	fake.Step(d - time.Nanosecond)
	select {
	case <-timer.C():
		t.Errorf("the timer fires before %s", d)
	default:
	}
	fake.Step(time.Nanosecond)
	select {
	case <-timer.C():
	default:
		t.Errorf("the timer does not fire after %s", d)
	}
}
