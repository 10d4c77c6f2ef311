package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// podRunner runs the agents' pods, and returns how long that takes: a node
// agent, or what it stands on.
type podRunner interface {
	create(ctx context.Context, name string) (time.Duration, error)
	remove(ctx context.Context, name string) (time.Duration, error)
}

// podTimes are how long a runner's pods took, sorted.
type podTimes struct{ created, removed []time.Duration }

// The pause between two pods that are measured one by one: what a runner has
// still to do after the one is not to slow down the other. How long it is within
// these bounds is left to chance, or a runner that looks after its pods once a
// second would be met at the same moment of that second each time.
const (
	minPodPause = 250 * time.Millisecond
	maxPodPause = 750 * time.Millisecond
)

func podPause() time.Duration { return minPodPause + rand.N(maxPodPause-minPodPause) }

// eachInTurn has the runners run n pods each: of each runner one after the
// other, and end them in the same way. Whatever else the machine does meanwhile
// meets all runners alike.
func eachInTurn(ctx context.Context, n int, runners ...podRunner) ([]podTimes, error) {
	all := make([]podTimes, len(runners))
	for i := range n {
		for j, runner := range runners {
			took, err := runner.create(ctx, fmt.Sprintf("pod-%03d", i))
			if err := errors.Join(err, wait(ctx, podPause())); err != nil {
				return nil, err
			}
			all[j].created = append(all[j].created, took)
		}
	}
	for i := range n {
		for j, runner := range runners {
			took, err := runner.remove(ctx, fmt.Sprintf("pod-%03d", i))
			if err := errors.Join(err, wait(ctx, podPause())); err != nil {
				return nil, err
			}
			all[j].removed = append(all[j].removed, took)
		}
	}
	for _, times := range all {
		slices.Sort(times.created)
		slices.Sort(times.removed)
	}
	return all, nil
}

// allAtOnce has one runner after the other run n pods at once, and end them.
func allAtOnce(ctx context.Context, n int, runners ...podRunner) ([]podTimes, error) {
	all := make([]podTimes, len(runners))
	for j, runner := range runners {
		var err error
		if all[j].created, err = atOnce(n, func(name string) (time.Duration, error) { return runner.create(ctx, name) }); err != nil {
			return nil, err
		}
		if all[j].removed, err = atOnce(n, func(name string) (time.Duration, error) { return runner.remove(ctx, name) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measurePodStarts is how long pods take to run, and to go, beside what the
// runtime itself takes for the same.
func measurePodStarts(ctx context.Context, t *trial) error {
	return withAgent(ctx, t, func(a *agentTrial) (err error) {
		alone, err := newRuntimeAlone(ctx, a)
		defer func() { err = errors.Join(err, alone.close()) }()
		if err != nil {
			return fmt.Errorf("the runtime alone: %w", err)
		}
		for _, runner := range []podRunner{alone, a} {
			if _, err := runner.create(ctx, "warm-up"); err != nil {
				return err
			}
			if _, err := runner.remove(ctx, "warm-up"); err != nil {
				return err
			}
		}
		before, err := cpuTime(t.instance.groups())
		if err != nil {
			return err
		}
		for _, f := range []struct {
			how string
			n   int
			run func(context.Context, int, ...podRunner) ([]podTimes, error)
		}{
			{"one by one", t.sizes.AgentStarts, eachInTurn},
			{fmt.Sprintf("%d at once", t.sizes.AgentBurst), t.sizes.AgentBurst, allAtOnce},
		} {
			times, err := f.run(ctx, f.n, alone, a)
			if err != nil {
				return err
			}
			t.recordFloor("the runtime alone, "+f.how, times[0].created)
			t.recordFloor("the runtime alone, end, "+f.how, times[0].removed)
			t.recordTimes("create to Running, "+f.how, times[1].created)
			t.record(lower("create to Running, "+f.how, aboveRuntime, "ms"), percentile(times[1].created, 50)-percentile(times[0].created, 50))
			t.recordTimes("delete to gone, "+f.how, times[1].removed)
		}
		after, err := cpuTime(t.instance.groups())
		if err != nil {
			return err
		}
		t.record(lower("a pod's life", "agent's processor", "ms"), milliseconds(after-before)/float64(t.sizes.AgentStarts+t.sizes.AgentBurst))
		return nil
	})
}

// aboveRuntime is the figure of what the agent adds to the runtime's own time.
const aboveRuntime = "p50 above the runtime"

// recordFloor records percentiles of what the agents stand on.
func (t *trial) recordFloor(name string, times []time.Duration) {
	t.record(floor(name, "p50", "ms"), percentile(times, 50))
	t.record(floor(name, "p99", "ms"), percentile(times, 99))
}
