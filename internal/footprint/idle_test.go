package footprint

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestTimersAreLateWhileTheProcessIsIdle(t *testing.T) {
	type change struct {
		at    time.Duration
		slack time.Duration
	}
	usual := usualSlack()
	for name, test := range map[string]struct {
		work     func(time.Duration) time.Duration // of the processor, until a time
		requests []time.Duration                   // when as many come as make a process busy
		fewer    bool                              // by one
		want     []change
	}{
		"idle":                        {work: func(time.Duration) time.Duration { return 0 }, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {time.Minute, usual}}},
		"some work":                   {work: func(d time.Duration) time.Duration { return d / 21 }, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {time.Minute, usual}}},
		"work":                        {work: func(d time.Duration) time.Duration { return d / 20 }, want: []change{{0, usual}}},
		"work for a while":            {work: func(d time.Duration) time.Duration { return min(max(d-10*time.Second, 0), time.Second) }, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {12 * time.Second, usual}, {15 * time.Second, idleSlack}, {time.Minute, usual}}},
		"requests":                    {requests: []time.Duration{10 * time.Second}, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {10 * time.Second, usual}, {15 * time.Second, idleSlack}, {time.Minute, usual}}},
		"few requests":                {requests: []time.Duration{10 * time.Second, 13 * time.Second}, fewer: true, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {time.Minute, usual}}},
		"requests in each interval":   {requests: []time.Duration{10 * time.Second, 13 * time.Second}, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {10 * time.Second, usual}, {18 * time.Second, idleSlack}, {time.Minute, usual}}},
		"requests while it is busy":   {work: func(d time.Duration) time.Duration { return min(d, 10*time.Second) }, requests: []time.Duration{time.Second}, want: []change{{0, usual}, {15 * time.Second, idleSlack}, {time.Minute, usual}}},
		"requests in the same moment": {requests: []time.Duration{10 * time.Second, 10 * time.Second}, want: []change{{0, usual}, {3 * time.Second, idleSlack}, {10 * time.Second, usual}, {15 * time.Second, idleSlack}, {time.Minute, usual}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began, a, got := time.Now(), newActivity(), []change(nil)
				for _, at := range test.requests {
					time.AfterFunc(at, func() {
						for n := range idleRequests + 1 {
							if n > 0 || !test.fewer {
								a.count()
							}
						}
					})
				}
				used := func() time.Duration {
					if test.work == nil {
						return 0
					}
					return test.work(time.Since(began))
				}
				err := a.tune(ctx, used, func(slack time.Duration) error {
					got = append(got, change{time.Since(began), slack})
					return nil
				})
				if err != nil || !slices.Equal(got, test.want) {
					t.Errorf("%v, want %v; %v", got, test.want, err)
				}
			})
		})
	}
}

func TestTimersAreLeftAloneWhereThreadsCannotBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, calls := errors.New("not permitted"), 0
		err := newActivity().tune(t.Context(), func() time.Duration { return 0 }, func(time.Duration) error { calls++; return refused })
		if calls != 1 || !errors.Is(err, refused) {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestTheUsualSlackIsSetUntilThatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var got []time.Duration
		failures := 0
		err := newActivity().tune(ctx, busyAfter(10*time.Second), func(slack time.Duration) error {
			got = append(got, slack)
			if slack == usualSlack() && len(got) > 1 && failures < 2 {
				failures++
				return errors.New("too many open files")
			}
			return nil
		})
		if want := []time.Duration{usualSlack(), idleSlack, usualSlack(), usualSlack(), usualSlack()}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, want %v; %v", got, want, err)
		}
	})
}

// busyAfter is the processor time of a process that works from a time on.
func busyAfter(idle time.Duration) func() time.Duration {
	began := time.Now()
	return func() time.Duration { return max(time.Since(began)-idle, 0) }
}
