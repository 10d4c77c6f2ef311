package runtime

import (
	"testing"
	"time"

	"svc.dev/svc/svclet/pod"
)

// begin starts the look that is due, and fails if there is none.
func begin(t *testing.T, a agenda, now time.Time) {
	t.Helper()
	if uid, _, _ := a.next(now); uid != "a" {
		t.Fatalf("%q is to be looked at", uid)
	}
}

// rest says when there is something to do again, and fails if there is now.
func rest(t *testing.T, a agenda, now time.Time) time.Time {
	t.Helper()
	uid, _, soonest := a.next(now)
	if uid != "" {
		t.Fatalf("%q is to be looked at already", uid)
	}
	return soonest
}

func observed(state pod.State) pod.Observed {
	return pod.Observed{Containers: []pod.Container{{ID: "c", State: state}}}
}

func TestAPodIsLookedAtOnceForAllThatHappensMeanwhile(t *testing.T) {
	a, now := agenda{}, time.Unix(100, 0)
	a.event("a", "c", started)
	begin(t, a, now)
	a.event("a", "c", ended)
	a.event("a", "d", ended)
	if soonest := rest(t, a, now); !soonest.IsZero() {
		t.Errorf("beside a look there is another one at %s", soonest)
	}
	a.looked("a", observed(pod.Running), now)
	begin(t, a, now)
	a.looked("a", observed(pod.Exited), now)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestWhatAnEventSaysIsLookedForUntilItShows(t *testing.T) {
	a, now := agenda{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	begin(t, a, now)
	a.looked("a", observed(pod.Running), now)
	due := rest(t, a, now)
	if due != now.Add(2*time.Millisecond) {
		t.Errorf("it is looked at again after %s", due.Sub(now))
	}
	begin(t, a, due)
	a.looked("a", observed(pod.Exited), due)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestWhatDoesNotShowIsGivenUpAfterSeconds(t *testing.T) {
	start := time.Unix(100, 0)
	a, now := agenda{}, start
	a.event("a", "c", ended)
	looks := 0
	for len(a) > 0 {
		begin(t, a, now)
		a.looked("a", observed(pod.Running), now)
		looks++
		if due := rest(t, a, now); !due.IsZero() {
			now = due
		}
	}
	if took := now.Sub(start); looks != againTimes+1 || took < time.Second || took > 3*time.Second {
		t.Errorf("it was given up after %d looks and %s", looks, took)
	}
}

func TestAPodThatCannotBeLookedAtIsRetriedLessAndLessOften(t *testing.T) {
	a, now := agenda{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		begin(t, a, now)
		a.failed("a", now, true)
		// Lists go on doubting it.
		a.listed("a", &listing{})
		due := rest(t, a, now)
		if got := due.Sub(now); got != want*time.Second {
			t.Errorf("the next look is after %s instead of %ds", got, want)
		}
		now = due
	}
	// An event is news, though.
	a.event("a", "c", removed)
	begin(t, a, now)
	a.looked("a", pod.Observed{}, now)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestALookThatTheRuntimeMissedIsMadeWhenItIsBack(t *testing.T) {
	a, now := agenda{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	begin(t, a, now)
	a.failed("a", now, false)
	begin(t, a, now)
}

func TestAListingIsUsedUnlessSomethingHasHappenedSince(t *testing.T) {
	a, now := agenda{}, time.Unix(100, 0)
	given := &listing{}
	a.listed("a", given)
	if _, it, _ := a.next(now); it.listing != given {
		t.Error("the listing is lost")
	}
	a.looked("a", observed(pod.Running), now)
	a.listed("a", given)
	a.event("a", "c", started)
	if _, it, _ := a.next(now); it.listing != nil {
		t.Error("the listing is older than the event")
	}
}

func TestWhatMeetsAnEvent(t *testing.T) {
	sandbox := func(ready bool) pod.Observed {
		return pod.Observed{Sandboxes: []pod.Sandbox{{ID: "c", Ready: ready}}}
	}
	tests := []struct {
		want     want
		observed pod.Observed
		met      bool
	}{
		{started, observed(pod.Created), false},
		{started, observed(pod.Running), true},
		{started, observed(pod.Exited), true},
		{started, pod.Observed{}, false},
		{started, sandbox(true), true},
		{started, sandbox(false), true},
		{ended, observed(pod.Running), false},
		{ended, observed(pod.Unknown), false},
		{ended, observed(pod.Exited), true},
		{ended, pod.Observed{}, true},
		{ended, sandbox(true), false},
		{ended, sandbox(false), true},
		{removed, observed(pod.Exited), false},
		{removed, sandbox(false), false},
		{removed, pod.Observed{}, true},
		{anything, observed(pod.Created), true},
		{anything, pod.Observed{}, true},
	}
	for _, test := range tests {
		if got := test.want.met("c", test.observed); got != test.met {
			t.Errorf("%q met by %+v: %v", test.want, test.observed, got)
		}
	}
}
