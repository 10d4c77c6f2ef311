package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a runner with a fixed duration for its pods. It records its calls.
type scripted struct {
	name  string
	takes time.Duration
	calls *[]string
	err   error
}

func (s scripted) do(what, pod string) (time.Duration, error) {
	*s.calls = append(*s.calls, strings.Join([]string{s.name, what, pod}, " "))
	return s.takes, s.err
}

func (s scripted) create(_ context.Context, pod string) (time.Duration, error) {
	return s.do("creates", pod)
}

func (s scripted) remove(_ context.Context, pod string) (time.Duration, error) {
	return s.do("removes", pod)
}

func TestRunnersTakeTurnsWithAPauseBetweenTheirPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		began := time.Now()
		times, err := eachInTurn(t.Context(), 2, scripted{"a", 1, &calls, nil}, scripted{"b", 2, &calls, nil})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"a creates pod-000", "b creates pod-000", "a creates pod-001", "b creates pod-001",
			"a removes pod-000", "b removes pod-000", "a removes pod-001", "b removes pod-001",
		}
		if !slices.Equal(calls, want) {
			t.Errorf("the calls were %q, want %q", calls, want)
		}
		for i, takes := range []time.Duration{1, 2} {
			if both := []time.Duration{takes, takes}; !slices.Equal(times[i].created, both) || !slices.Equal(times[i].removed, both) {
				t.Errorf("runner %d took %v, want %v for each", i, times[i], both)
			}
		}
		if took := time.Since(began); took < 8*minPodPause || took > 8*maxPodPause {
			t.Errorf("the pauses took %s, want from %s to %s", took, 8*minPodPause, 8*maxPodPause)
		}
	})
}

func TestAPodThatFailsEndsTheMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		broken := errors.New("broken")
		healthy, ill := scripted{"a", 1, &calls, nil}, scripted{"b", 1, &calls, broken}
		if _, err := eachInTurn(t.Context(), 1, healthy, ill); !errors.Is(err, broken) {
			t.Errorf("one by one: the error is %v, want %v", err, broken)
		}
		if _, err := allAtOnce(t.Context(), 1, ill); !errors.Is(err, broken) {
			t.Errorf("at once: the error is %v, want %v", err, broken)
		}
	})
}
