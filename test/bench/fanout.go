package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// watchersPerConnection is how many watches share a connection, as the
	// informers of a controller do.
	watchersPerConnection = 50
	// deliveryTimeout is how long the last event may take to reach everybody.
	deliveryTimeout = 30 * time.Second
)

// measureFanOut writes one object again and again before many watchers. A
// latency is from sending the write to one watcher's having read the event.
func measureFanOut(ctx context.Context, t *trial) error {
	for _, watchers := range t.sizes.Watchers {
		if err := t.fanOut(ctx, watchers); err != nil {
			return fmt.Errorf("%d watchers: %w", watchers, err)
		}
	}
	return nil
}

func (t *trial) fanOut(ctx context.Context, watchers int) error {
	clients, err := t.clients(ctx, 1+(watchers+watchersPerConnection-1)/watchersPerConnection)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	writer, k, namespace := clients[0], configMapKind(), fmt.Sprintf("bench-fanout-%d", watchers)
	if err := t.namespace(ctx, writer, namespace); err != nil {
		return err
	}
	if err := writer.do(ctx, k.create(namespace, "object", 0)); err != nil {
		return err
	}
	audience := newAudience(t.sizes.Events)
	defer audience.leave()
	for i := range watchers {
		audience.join(ctx, clients[1+i/watchersPerConnection], k.collection(namespace))
	}
	if err := audience.waitBegun(watchers); err != nil {
		return err
	}
	before, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	ticker := time.NewTicker(t.sizes.EventPause)
	defer ticker.Stop()
	for range t.sizes.Events {
		<-ticker.C
		if err := writer.do(ctx, k.update(namespace, "object", int64(time.Since(audience.epoch)))); err != nil {
			return err
		}
	}
	latencies, err := audience.waitEnded(watchers)
	if err != nil {
		return err
	}
	after, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	slices.Sort(latencies)
	name := fanOutRow(watchers)
	t.record(lower(name, "p50", "ms"), percentile(latencies, 50))
	t.record(lower(name, "p99", "ms"), percentile(latencies, 99))
	t.record(lower(name, "server processor", "s/1000"), (after-before).Seconds()/float64(len(latencies))*1000)
	return nil
}

func fanOutRow(watchers int) string { return "fan-out to " + plural(watchers, "watcher") }

// An audience is a number of watchers of the same object, whose revisions are
// the nanoseconds from the epoch to its writing.
type audience struct {
	epoch   time.Time
	events  int // that each watcher receives after the first
	begun   chan struct{}
	ended   chan reception
	cancels []context.CancelFunc
	members sync.WaitGroup
}

// reception is what came to a watcher.
type reception struct {
	latencies []time.Duration
	err       error
}

func newAudience(events int) *audience {
	return &audience{epoch: time.Now(), events: events, begun: make(chan struct{}), ended: make(chan reception)}
}

// join adds a watcher, which counts as begun once it has seen the object.
func (a *audience) join(ctx context.Context, c *client, path string) {
	ctx, cancel := context.WithCancel(ctx)
	a.cancels = append(a.cancels, cancel)
	a.members.Go(func() {
		latencies, err := a.watch(ctx, c, path+"?watch=true&resourceVersion=0")
		select {
		case a.ended <- reception{latencies, err}:
		case <-ctx.Done():
		}
	})
}

func (a *audience) watch(ctx context.Context, c *client, path string) ([]time.Duration, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	reader := bufio.NewReaderSize(body, 16<<10)
	latencies := make([]time.Duration, 0, a.events)
	for len(latencies) < a.events {
		event, err := reader.ReadSlice('\n')
		now := time.Since(a.epoch)
		if err != nil {
			return nil, err
		}
		written, err := revision(event)
		if err != nil {
			return nil, err
		}
		if written > 0 {
			latencies = append(latencies, now-time.Duration(written))
			continue
		}
		select {
		case a.begun <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return latencies, nil
}

// revision is the value of the revision annotation in an event in JSON.
func revision(event []byte) (int64, error) {
	_, after, found := bytes.Cut(event, []byte(`"`+revisionKey+`":"`))
	digits, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended {
		return 0, fmt.Errorf("no revision in the event %.300q", event)
	}
	return strconv.ParseInt(string(digits), 10, 64)
}

func (a *audience) waitBegun(watchers int) error {
	timeout := time.After(deliveryTimeout)
	for i := range watchers {
		select {
		case <-a.begun:
		case r := <-a.ended:
			return fmt.Errorf("a watch ended before the first write: %w", r.err)
		case <-timeout:
			return fmt.Errorf("%d of %d watches have begun after %s", i, watchers, deliveryTimeout)
		}
	}
	return nil
}

func (a *audience) waitEnded(watchers int) ([]time.Duration, error) {
	var latencies []time.Duration
	timeout := time.After(deliveryTimeout)
	for i := range watchers {
		select {
		case r := <-a.ended:
			if r.err != nil {
				return nil, r.err
			}
			latencies = append(latencies, r.latencies...)
		case <-timeout:
			return nil, fmt.Errorf("%d of %d watchers have received every event %s after the last write", i, watchers, deliveryTimeout)
		}
	}
	return latencies, nil
}

// leave ends the watches and waits until they have ended.
func (a *audience) leave() {
	for _, cancel := range a.cancels {
		cancel()
	}
	a.members.Wait()
}
