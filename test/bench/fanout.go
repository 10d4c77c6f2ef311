package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// watchersPerConnection is the number of watches on one connection: the
	// informers of a controller share one, too.
	watchersPerConnection = 50
	// deliveryTimeout bounds the time until all watchers have the last event.
	deliveryTimeout = 30 * time.Second
)

// measureFanOut updates one object repeatedly while many watchers watch it. A
// latency is the time from sending the write until one watcher has read the event.
func measureFanOut(ctx context.Context, t *trial) error {
	for _, watchers := range t.sizes.Watchers {
		if err := t.fanOut(ctx, watchers); err != nil {
			return fmt.Errorf("%d watchers: %w", watchers, err)
		}
	}
	return nil
}

func (t *trial) fanOut(ctx context.Context, watchers int) error {
	clients, err := t.clients(ctx, 1)
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
	config, err := t.config()
	if err != nil {
		return err
	}
	audience := newAudience(t.sizes.Events)
	defer audience.leave()
	for seats := watchers; seats > 0; seats -= watchersPerConnection {
		if err := audience.join(ctx, config, k.collection(namespace), min(seats, watchersPerConnection)); err != nil {
			return err
		}
	}
	if err := audience.waitBegun(); err != nil {
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
	latencies, err := audience.waitEnded()
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

// An audience is a number of watchers of one object. The object's revision
// annotation is the time of the write, in nanoseconds since 1970.
type audience struct {
	epoch  time.Time
	events int // that each watcher receives after the first
	begun  chan struct{}
	ended  chan reception
	blocks []*watchers
	left   chan struct{}
	reads  sync.WaitGroup
}

// reception is the result of the watchers of a connection.
type reception struct {
	latencies []time.Duration
	err       error
}

func newAudience(events int) *audience {
	// A connection that has begun must be read on, or the server closes it: begun holds
	// as many as any measure has.
	const connections = 1_000
	return &audience{epoch: time.Now(), events: events, begun: make(chan struct{}, connections), ended: make(chan reception), left: make(chan struct{})}
}

// join adds n watchers on a connection. They have begun once each has received the
// object.
func (a *audience) join(ctx context.Context, config *rest.Config, path string, n int) error {
	block, err := openWatches(ctx, config, path+"?watch=true&resourceVersion=0", n)
	if err != nil {
		return err
	}
	a.blocks = append(a.blocks, block)
	a.reads.Go(func() {
		latencies, err := a.read(block, n)
		select {
		case a.ended <- reception{latencies, err}:
		case <-a.left:
		}
	})
	return nil
}

func (a *audience) read(block *watchers, n int) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, n*a.events)
	waiting := n
	err := block.read(func(_ uint32, event []byte) (bool, error) {
		now := time.Since(a.epoch)
		written, err := revision(event)
		if err != nil {
			return false, err
		}
		if written > 0 {
			latencies = append(latencies, now-time.Duration(written))
			return len(latencies) < cap(latencies), nil
		}
		if waiting--; waiting == 0 {
			select {
			case a.begun <- struct{}{}:
			case <-a.left:
			}
		}
		return true, nil
	})
	return latencies, err
}

// revision returns the value of the revision annotation in a JSON event.
func revision(event []byte) (int64, error) {
	_, after, found := bytes.Cut(event, []byte(`"`+revisionKey+`":"`))
	digits, _, ended := bytes.Cut(after, []byte(`"`))
	if !found || !ended {
		return 0, fmt.Errorf("no revision in the event %.300q", event)
	}
	return strconv.ParseInt(string(digits), 10, 64)
}

func (a *audience) waitBegun() error {
	timeout := time.After(deliveryTimeout)
	for range a.blocks {
		select {
		case <-a.begun:
		case r := <-a.ended:
			return fmt.Errorf("a watch ended before the first write: %w", r.err)
		case <-timeout:
			return fmt.Errorf("not all watches have begun after %s", deliveryTimeout)
		}
	}
	return nil
}

func (a *audience) waitEnded() ([]time.Duration, error) {
	var latencies []time.Duration
	timeout := time.After(deliveryTimeout)
	for range a.blocks {
		select {
		case r := <-a.ended:
			if r.err != nil {
				return nil, r.err
			}
			latencies = append(latencies, r.latencies...)
		case <-timeout:
			return nil, fmt.Errorf("not all watchers have received every event %s after the last write", deliveryTimeout)
		}
	}
	return latencies, nil
}

// leave ends the watches and waits until they have ended.
func (a *audience) leave() {
	close(a.left)
	for _, block := range a.blocks {
		block.close()
	}
	a.reads.Wait()
}
