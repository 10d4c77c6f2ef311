package logs

import (
	"testing"
	"time"
)

func TestALogThatGrowsFastIsCheckedEarlier(t *testing.T) {
	const maximum, longest = 1000, 10 * time.Second
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := growth{at: start}
	now := start
	for _, step := range []struct {
		name  string
		after time.Duration
		sizes map[string]int64
		want  time.Duration
	}{
		{"no log", 10 * time.Second, nil, longest},
		{"slow logs", 10 * time.Second, map[string]int64{"a": 10, "b": 0}, longest},
		{"a log that is full in 4 s", 10 * time.Second, map[string]int64{"a": 10, "b": 714}, 4005602240 * time.Nanosecond},
		{"a log that was rotated, at 71.5 bytes a second", 4 * time.Second, map[string]int64{"a": 10, "b": 1000}, longest},
		{"a log that is full at once", 10 * time.Second, map[string]int64{"a": 10, "b": 9000}, 10 * time.Second / 9},
		{"... and again", time.Second, map[string]int64{"a": 10, "b": 90000}, shortestInterval},
		{"... and ends", shortestInterval, map[string]int64{"a": 10}, longest},
	} {
		now = now.Add(step.after)
		got := g.next(now, step.sizes, maximum, longest)
		if d := got - step.want; d < -time.Millisecond || d > time.Millisecond {
			t.Errorf("%s: next check after %s, want %s", step.name, got, step.want)
		}
	}
}

func TestAnIntervalThatIsShorterThanTheShortestStays(t *testing.T) {
	g := growth{}
	if got := g.next(time.Unix(1, 0), map[string]int64{"a": 1 << 40}, 1, time.Millisecond); got != time.Millisecond {
		t.Errorf("next check after %s", got)
	}
}
