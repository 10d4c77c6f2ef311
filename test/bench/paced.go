package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// paced is a request that is sent at a rate, without waiting for earlier answers,
// as many independent users do.
type paced struct {
	name string
	rate float64 // per second
	send func(ctx context.Context, i int) error
}

// pacedTimes has the sorted latencies of each kind. A latency counts from the time
// at which the request was due.
type pacedTimes map[string][]time.Duration

// all returns the sorted latencies of all kinds.
func (t pacedTimes) all() []time.Duration {
	var all []time.Duration
	for _, latencies := range t {
		all = append(all, latencies...)
	}
	slices.Sort(all)
	return all
}

// pace sends requests of all kinds for the duration d, and waits for the answers.
// The first error ends it.
func pace(ctx context.Context, d time.Duration, kinds []paced) (pacedTimes, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		pacers, requests sync.WaitGroup
		mu               sync.Mutex
		times            = pacedTimes{}
		errs             []error
	)
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
		cancel()
	}
	began := time.Now()
	for _, k := range kinds {
		pacers.Go(func() {
			for i := range int(k.rate * d.Seconds()) {
				due := began.Add(time.Duration(float64(i) / k.rate * float64(time.Second)))
				if err := wait(ctx, time.Until(due)); err != nil {
					failed(err)
					return
				}
				requests.Go(func() {
					if err := k.send(ctx, i); err != nil {
						failed(err)
						return
					}
					took := time.Since(due)
					mu.Lock()
					defer mu.Unlock()
					times[k.name] = append(times[k.name], took)
				})
			}
		})
	}
	pacers.Wait()
	requests.Wait()
	if err := firstCause(errs); err != nil {
		return nil, err
	}
	for _, latencies := range times {
		slices.Sort(latencies)
	}
	return times, nil
}
