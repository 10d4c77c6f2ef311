package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// paced sends a request of one kind at a rate, whether those before it have
// been answered or not, as many users do together.
type paced struct {
	name string
	rate float64 // per second
	send func(ctx context.Context, i int) error
}

// pacedTimes are the latencies of each kind, sorted. Each is from the moment at
// which the request was due.
type pacedTimes map[string][]time.Duration

// all are those of all kinds.
func (t pacedTimes) all() []time.Duration {
	var all []time.Duration
	for _, latencies := range t {
		all = append(all, latencies...)
	}
	slices.Sort(all)
	return all
}

// pace sends requests of all kinds for a while, and waits for the answers. The
// first error ends it.
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
