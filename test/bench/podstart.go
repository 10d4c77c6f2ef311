package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// podRunner runs pods and measures how long that takes. It is a node agent, or the
// container runtime alone.
type podRunner interface {
	create(ctx context.Context, name string) (time.Duration, error)
	remove(ctx context.Context, name string) (time.Duration, error)
}

// podTimes has the sorted durations of a runner's pods.
type podTimes struct{ created, removed []time.Duration }

// The bounds of the pause between two pods that are measured one by one, in which
// a runner finishes its work for the first one. The pause is random: a runner that
// syncs its pods once a second would otherwise always be measured at the same
// point of its period.
const (
	minPodPause = 250 * time.Millisecond
	maxPodPause = 750 * time.Millisecond
)

func podPause() time.Duration { return minPodPause + rand.N(maxPodPause-minPodPause) }

// eachInTurn has each runner run n pods and remove them, one pod of each runner in
// turn, so that other load of the machine affects all runners alike.
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

// allAtOnce has a runner run n pods at once, and then remove them.
func allAtOnce(ctx context.Context, n int, runner podRunner) (times podTimes, err error) {
	if times.created, err = atOnce(n, func(name string) (time.Duration, error) { return runner.create(ctx, name) }); err != nil {
		return times, err
	}
	times.removed, err = atOnce(n, func(name string) (time.Duration, error) { return runner.remove(ctx, name) })
	return times, err
}

// measurePodStarts measures the start and removal of pods, and the same with the
// runtime alone.
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
		inTurn, err := eachInTurn(ctx, t.sizes.AgentStarts, alone, a)
		if err != nil {
			return err
		}
		t.recordPodTimes("one by one", inTurn[0], inTurn[1])

		n := t.sizes.AgentBurst
		floor, err := allAtOnce(ctx, n, alone)
		if err != nil {
			return err
		}
		before, err := cpuTime(t.instance.groups())
		if err != nil {
			return err
		}
		times, err := allAtOnce(ctx, n, a)
		if err != nil {
			return err
		}
		after, err := cpuTime(t.instance.groups())
		if err != nil {
			return err
		}
		t.recordPodTimes(fmt.Sprintf("%d at once", n), floor, times)
		t.record(lower("a pod's life", "agent's processor", "ms"), milliseconds(after-before)/float64(n))
		return nil
	})
}

// aboveRuntime is the figure of the time that the agent adds to the runtime's.
const aboveRuntime = "p50 above the runtime"

// recordPodTimes records the durations of the runtime alone and of the agent.
func (t *trial) recordPodTimes(how string, alone, agent podTimes) {
	t.recordFloor("the runtime alone, "+how, alone.created)
	t.recordFloor("the runtime alone, end, "+how, alone.removed)
	t.recordTimes("create to Running, "+how, agent.created)
	t.record(lower("create to Running, "+how, aboveRuntime, "ms"), percentile(agent.created, 50)-percentile(alone.created, 50))
	t.recordTimes("delete to gone, "+how, agent.removed)
}

// recordFloor records percentiles of the runtime alone.
func (t *trial) recordFloor(name string, times []time.Duration) {
	t.record(floor(name, "p50", "ms"), percentile(times, 50))
	t.record(floor(name, "p99", "ms"), percentile(times, 99))
}
