package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// sizes are the amounts of work of each measure.
type sizes struct {
	Settle         time.Duration // from readiness to the measure of idle memory
	Idle           time.Duration // over which idle processor time is measured
	Operations     map[int]int   // of each verb and kind, by the number of clients
	ListPods       int           // that exist when lists and watches are measured
	Lists          int           // of each kind
	Relisters      int           // clients that list at the same time
	Watchers       []int         // that receive the same events
	Events         int           // that each of them receives
	EventPause     time.Duration // between two events
	MemoryPods     int           // that exist when memory is measured at the end
	MemorySettle   time.Duration // from the last of them to the measure
	Nodes          int           // that pods are scheduled on
	LargeNodes     int           // the same, many
	Scheduled      int           // pods
	Deployments    int           // of ten pods, that are rolled out
	Content        int           // objects of a namespace that is deleted
	Namespaces     int           // that are deleted at once
	Dependents     int           // of an owner that is deleted
	Mass           int           // objects that are deleted while others work
	Stateful       int           // pods of stateful sets, that are started and rolled
	CronJobs       int           // that fire at once
	Autoscalers    int           // whose metric changes
	Claims         int           // that are bound to volumes
	Preemptors     int           // pods that take the place of others, at most 500
	AgentPods      []int         // that do nothing while the agent is measured
	AgentStarts    int           // pods that are started one by one
	AgentBurst     int           // pods that are started at once
	AgentMass      int           // pods that fill a node at once
	Evictions      int           // of pods from a node whose disk is full
	CrowdNodes     int           // whose machines send heartbeats
	CrowdPods      int           // on them
	ManyNodes      int           // the same, many
	ManyPods       int           // on them
	Crowd          time.Duration // for which users send requests meanwhile
	FleetAgents    int           // that run at once
	FleetPods      int           // on their nodes
	Definitions    int           // of custom resources
	Objects        int           // of a kind, built-in and custom
	IdleWatches    int           // that get no events
	Growth         []int         // pods that exist when figures are measured by their number
	GrowthRequests int           // of each verb at each number
	Profile        time.Duration // of the processor, at the start of each measure
}

func fullSizes() sizes {
	return sizes{
		Settle: time.Minute, Idle: time.Minute,
		Operations: map[int]int{1: 1_000, 16: 6_000, 64: 6_000},
		ListPods:   10_000, Lists: 11, Relisters: 100,
		Watchers: []int{100, 1_000}, Events: 500, EventPause: 100 * time.Millisecond,
		MemoryPods: 50_000, MemorySettle: 10 * time.Second,
		Nodes: 1_000, LargeNodes: 5_000, Scheduled: 5_000, Deployments: 100, Content: 10_000, Namespaces: 1_000, Dependents: 50_000, Mass: 100_000,
		Stateful: 1_000, CronJobs: 500, Autoscalers: 200, Claims: 5_000, Preemptors: 250,
		AgentPods: []int{10, 50}, AgentStarts: 20, AgentBurst: 20, AgentMass: 110, Evictions: 6,
		CrowdNodes: 1_000, CrowdPods: 10_000, ManyNodes: 5_000, ManyPods: 150_000, Crowd: time.Minute,
		FleetAgents: 200, FleetPods: 2_000,
		Definitions: 500, Objects: 100_000, IdleWatches: 10_000,
		Growth: []int{1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 150_000}, GrowthRequests: 500,
		Profile: 10 * time.Second,
	}
}

// quickSizes returns sizes for a check that the benchmark itself works.
func quickSizes() sizes {
	return sizes{
		Settle: 2 * time.Second, Idle: 2 * time.Second,
		Operations: map[int]int{1: 50, 16: 320, 64: 640},
		ListPods:   1_000, Lists: 3, Relisters: 20,
		Watchers: []int{100, 1_000}, Events: 10, EventPause: 100 * time.Millisecond,
		MemoryPods: 2_000, MemorySettle: time.Second,
		Nodes: 100, LargeNodes: 500, Scheduled: 500, Deployments: 10, Content: 1_000, Namespaces: 50, Dependents: 2_000, Mass: 2_000,
		Stateful: 100, CronJobs: 50, Autoscalers: 20, Claims: 200, Preemptors: 20,
		AgentPods: []int{5}, AgentStarts: 5, AgentBurst: 5, AgentMass: 10, Evictions: 2,
		CrowdNodes: 100, CrowdPods: 1_000, ManyNodes: 200, ManyPods: 3_000, Crowd: 5 * time.Second,
		FleetAgents: 10, FleetPods: 100,
		Definitions: 10, Objects: 1_000, IdleWatches: 500,
		Growth: []int{500, 1_000}, GrowthRequests: 50,
		Profile: time.Second,
	}
}

// clientCounts returns the numbers of clients with which verbs are measured.
func clientCounts() []int { return []int{1, 16, 64} }

// A measure records figures of a running system. Measures run in order, on the
// data that earlier ones have left.
type measure struct {
	name string
	run  func(context.Context, *trial) error
}

// A trial is one system in one round, with its own data directory.
type trial struct {
	system     system
	dir        string
	sizes      sizes
	record     func(row, float64)
	profiles   string // directory for profiles; empty for none
	log        func(format string, args ...any)
	instance   *instance
	firstStart time.Duration
	commands   []string // that started the processes
	pods       int      // that exist in listNamespace
}

// run starts the system, takes the measures and stops it. A failed measure does not
// prevent later ones.
func (t *trial) run(ctx context.Context, selected []measure) error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	var err error
	if t.instance, t.firstStart, err = start(ctx, t.system, t.dir); err != nil {
		return err
	}
	for _, c := range t.instance.commands {
		t.commands = append(t.commands, c.line(t.dir))
	}
	var errs []error
	for _, m := range selected {
		if ctx.Err() != nil || len(t.instance.commands) == 0 {
			errs = append(errs, fmt.Errorf("%s and the measures after it were not taken", m.name), ctx.Err())
			break
		}
		began, clients := time.Now(), ownCPU()
		finish := t.profile(ctx, m.name)
		if err := m.run(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", m.name, err, t.logs()))
		}
		finish()
		t.log("%s: %s took %s, and the clients %s of the processors", t.system.Name(), m.name,
			time.Since(began).Round(100*time.Millisecond), (ownCPU() - clients).Round(100*time.Millisecond))
	}
	return errors.Join(append(errs, t.instance.stop())...)
}

// restart stops the system and starts it again on the same data.
func (t *trial) restart(ctx context.Context) (time.Duration, error) {
	stopped := t.instance.stop()
	in, took, err := start(ctx, t.system, t.dir)
	if err == nil {
		t.instance = in
	}
	return took, errors.Join(stopped, err)
}

// clients connects n clients.
func (t *trial) clients(ctx context.Context, n int) ([]*client, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	return dial(ctx, config, n)
}

func (t *trial) config() (*rest.Config, error) { return t.system.Config(t.dir) }

// namespace creates a namespace, with the service account that its pods name,
// unless they exist.
func (t *trial) namespace(ctx context.Context, c *client, name string) error {
	for _, r := range []request{
		{path: "/api/v1/namespaces", body: []byte(`{"metadata":{"name":"` + name + `"}}`)},
		{path: "/api/v1/namespaces/" + name + "/serviceaccounts", body: []byte(`{"metadata":{"name":"default"}}`)},
	} {
		r.method = http.MethodPost
		err := c.do(ctx, r)
		if status := (*statusError)(nil); errors.As(err, &status) && status.code == http.StatusConflict {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// logs returns the end of the logs of the system's processes.
func (t *trial) logs() []byte {
	var all []byte
	for _, c := range t.instance.commands {
		all = append(all, fmt.Sprintf("the end of the log of %s:\n", c.name)...)
		all = append(all, tail(t.instance.log(c.name))...)
	}
	return all
}

// wait sleeps, or returns the error of a context that ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
