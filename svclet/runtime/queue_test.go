package runtime

import (
	"testing"
	"time"

	"svc.dev/svc/svclet/pod"
)

// begin starts the inspection that is due, and fails the test if none is.
func begin(t *testing.T, a inspectionQueue, now time.Time) {
	t.Helper()
	if uid, _, _ := a.next(now); uid != "a" {
		t.Fatalf("%q is to be inspected", uid)
	}
}

// idleUntil returns when the next inspection is due, and fails the test if one is
// due now.
func idleUntil(t *testing.T, a inspectionQueue, now time.Time) time.Time {
	t.Helper()
	uid, _, soonest := a.next(now)
	if uid != "" {
		t.Fatalf("%q is due already", uid)
	}
	return soonest
}

func observed(state pod.State) pod.Observed {
	return pod.Observed{Containers: []pod.Container{{ID: "c", State: state}}}
}

func TestEventsDuringAnInspectionAreCoalescedIntoOne(t *testing.T) {
	a, now := inspectionQueue{}, time.Unix(100, 0)
	a.event("a", "c", started)
	begin(t, a, now)
	a.event("a", "c", ended)
	a.event("a", "d", ended)
	if soonest := idleUntil(t, a, now); !soonest.IsZero() {
		t.Errorf("an inspection is due during another one, at %s", soonest)
	}
	a.inspected("a", observed(pod.Running), now)
	begin(t, a, now)
	a.inspected("a", observed(pod.Exited), now)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestAPodIsInspectedUntilTheEventsExpectationIsMet(t *testing.T) {
	a, now := inspectionQueue{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	begin(t, a, now)
	a.inspected("a", observed(pod.Running), now)
	due := idleUntil(t, a, now)
	if due != now.Add(2*time.Millisecond) {
		t.Errorf("it is inspected again after %s", due.Sub(now))
	}
	begin(t, a, due)
	a.inspected("a", observed(pod.Exited), due)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestAnUnmetExpectationIsDroppedAfterSeconds(t *testing.T) {
	start := time.Unix(100, 0)
	a, now := inspectionQueue{}, start
	a.event("a", "c", ended)
	inspections := 0
	for len(a) > 0 {
		begin(t, a, now)
		a.inspected("a", observed(pod.Running), now)
		inspections++
		if due := idleUntil(t, a, now); !due.IsZero() {
			now = due
		}
	}
	if took := now.Sub(start); inspections != againTimes+1 || took < time.Second || took > 3*time.Second {
		t.Errorf("it was given up after %d inspections and %s", inspections, took)
	}
}

func TestFailedInspectionsAreRetriedWithBackoff(t *testing.T) {
	a, now := inspectionQueue{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		begin(t, a, now)
		a.failed("a", now, true)
		// Relists keep reporting a difference.
		a.listed("a", &listing{})
		due := idleUntil(t, a, now)
		if got := due.Sub(now); got != want*time.Second {
			t.Errorf("the next inspection is after %s instead of %ds", got, want)
		}
		now = due
	}
	// An event resets the back-off.
	a.event("a", "c", removed)
	begin(t, a, now)
	a.inspected("a", pod.Observed{}, now)
	if len(a) != 0 {
		t.Errorf("left over: %+v", a["a"])
	}
}

func TestAnInspectionThatFoundTheRuntimeUnavailableIsRetriedAtOnce(t *testing.T) {
	a, now := inspectionQueue{}, time.Unix(100, 0)
	a.event("a", "c", ended)
	begin(t, a, now)
	a.failed("a", now, false)
	begin(t, a, now)
}

func TestAListingIsUsedUnlessAnEventHasArrivedSince(t *testing.T) {
	a, now := inspectionQueue{}, time.Unix(100, 0)
	given := &listing{}
	a.listed("a", given)
	if _, it, _ := a.next(now); it.listing != given {
		t.Error("the listing is lost")
	}
	a.inspected("a", observed(pod.Running), now)
	a.listed("a", given)
	a.event("a", "c", started)
	if _, it, _ := a.next(now); it.listing != nil {
		t.Error("the listing is older than the event")
	}
}

func TestWhichStatesMeetAnExpectation(t *testing.T) {
	sandbox := func(ready bool) pod.Observed {
		return pod.Observed{Sandboxes: []pod.Sandbox{{ID: "c", Ready: ready}}}
	}
	tests := []struct {
		expectation expectation
		observed    pod.Observed
		met         bool
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
		if got := test.expectation.met("c", test.observed); got != test.met {
			t.Errorf("%q met by %+v: %v", test.expectation, test.observed, got)
		}
	}
}
