package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is the result of a load.
type outcome struct {
	operations int
	elapsed    time.Duration
	latencies  []time.Duration // sorted, one for each operation
	cpu        time.Duration   // of the servers, during the load
}

func (o outcome) perSecond() float64 { return float64(o.operations) / o.elapsed.Seconds() }

// cpuPerThousand returns the servers' CPU time per 1,000 operations, in seconds.
func (o outcome) cpuPerThousand() float64 { return o.cpu.Seconds() / float64(o.operations) * 1000 }

// load runs n operations. Each client runs one at a time, the next right after the
// previous answer. The first error ends the load.
func (t *trial) load(ctx context.Context, clients []*client, n int, operation func(ctx context.Context, c *client, i int) error) (outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cpu, err := cpuTime(t.instance.groups())
	if err != nil {
		return outcome{}, err
	}
	var (
		workers   sync.WaitGroup
		next      atomic.Int64
		latencies = make([][]time.Duration, len(clients))
		errs      = make([]error, len(clients))
	)
	began := time.Now()
	for w, c := range clients {
		latencies[w] = make([]time.Duration, 0, 2*n/len(clients))
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				sent := time.Now()
				if errs[w] = operation(ctx, c, i); errs[w] != nil {
					cancel()
					return
				}
				latencies[w] = append(latencies[w], time.Since(sent))
			}
		})
	}
	workers.Wait()
	o := outcome{operations: n, elapsed: time.Since(began)}
	if err := firstCause(errs); err != nil {
		return outcome{}, err
	}
	if o.cpu, err = cpuTime(t.instance.groups()); err != nil {
		return outcome{}, err
	}
	o.cpu -= cpu
	o.latencies = slices.Concat(latencies...)
	slices.Sort(o.latencies)
	return o, nil
}

// firstCause returns the first error that is not only the cancellation after
// another error.
func firstCause(errs []error) error {
	var ended error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		ended = errors.Join(ended, err)
	}
	return ended
}
