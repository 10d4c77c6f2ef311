package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"svc.dev/svc/test/fleet"
	"svc.dev/svc/test/launch"
)

// wholeSystem is `svc up` with all its controllers. The agents are not among its
// processes.
type wholeSystem struct {
	*svcSystem
	svclet string // binary
}

// Processes implements system.
func (s *wholeSystem) Processes(dir string) ([]process, error) {
	return []process{{
		name: "svc", path: s.binary, listens: net.JoinHostPort("127.0.0.1", s.port),
		args: []string{"up", "--data-dir", dir, "--secure-port", s.port, "--node=false"},
	}}, nil
}

// measureFleet measures many agents, each with a fake runtime, and the pods of
// deployments on their nodes.
func measureFleet(ctx context.Context, t *trial) (err error) {
	s, ok := t.system.(*wholeSystem)
	if !ok {
		return fmt.Errorf("%s is not a whole cluster", t.system.Name())
	}
	config, err := t.config()
	if err != nil {
		return err
	}
	pki := filepath.Join(t.dir, "pki")
	authority, err := launch.ReadAuthority(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return err
	}
	agents, pods := t.sizes.FleetAgents, t.sizes.FleetPods
	began := time.Now()
	f, err := fleet.Start(ctx, config, launch.Cluster{Server: s.URL(), Authority: authority}, s.svclet, agents)
	defer func() { err = errors.Join(err, f.Stop(), t.removeNodes(ctx)) }()
	if err != nil {
		return err
	}
	run := fleetTrial{t, f, agents, pods}
	if err := run.await(ctx, "all nodes are ready", func() bool { return f.ReadyNodes() == agents }); err != nil {
		return err
	}
	t.record(lower("fleet", "nodes ready", "s"), time.Since(began).Seconds())
	if err := run.idle(ctx, "fleet, an agent"); err != nil {
		return err
	}
	if err := run.change(ctx, "fleet, pods run", f.Deploy, func() bool { return f.ReadyPods() == pods }); err != nil {
		return err
	}
	if err := run.idle(ctx, fmt.Sprintf("fleet, an agent with %d pods", pods/agents)); err != nil {
		return err
	}
	if err := run.change(ctx, "fleet, pods gone", func(ctx context.Context, _ int) error { return f.Undeploy(ctx) }, func() bool {
		return f.Pods() == 0 && f.HeldPods() == 0
	}); err != nil {
		return err
	}
	if lines := f.Errors(); len(lines) > 0 {
		return fmt.Errorf("the agents have logged %d errors:\n%s", len(lines), strings.Join(lines[:min(len(lines), 10)], "\n"))
	}
	return nil
}

// fleetTrial is a trial with a fleet.
type fleetTrial struct {
	*trial
	*fleet.Fleet
	agents, pods int
}

// await waits until a condition is true.
func (t fleetTrial) await(ctx context.Context, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	if err := until(ctx, func() (bool, error) { return so(), nil }); err != nil {
		return fmt.Errorf("before %s (%d of %d nodes are ready, %d pods of %d, the runtimes have %d): %w\n%s",
			what, t.ReadyNodes(), t.agents, t.ReadyPods(), t.pods, t.HeldPods(), err, strings.Join(t.Errors(), "\n"))
	}
	return nil
}

// idle records the memory and CPU time of an idle agent.
func (t fleetTrial) idle(ctx context.Context, name string) error {
	if err := wait(ctx, t.sizes.Settle); err != nil {
		return err
	}
	m, err := memoryOf(t.Pids())
	if err != nil {
		return err
	}
	t.record(lower(name, "memory, RSS", "MB"), float64(m.RSS)/1e6/float64(t.agents))
	t.record(lower(name, "memory, PSS", "MB"), float64(m.PSS)/1e6/float64(t.agents))
	used, err := t.use(func() error { return wait(ctx, t.sizes.Idle) })
	if err != nil {
		return err
	}
	minutes := t.sizes.Idle.Minutes()
	t.record(lower(name, "processor", "ms/min"), milliseconds(used.agents)/float64(t.agents)/minutes)
	t.record(lower(name, "the server's processor", "ms/min"), milliseconds(used.server)/float64(t.agents)/minutes)
	return nil
}

// change records the time and CPU time of a change of all pods.
func (t fleetTrial) change(ctx context.Context, name string, do func(context.Context, int) error, done func() bool) error {
	began := time.Now()
	used, err := t.use(func() error {
		if err := do(ctx, t.pods); err != nil {
			return err
		}
		return t.await(ctx, name, done)
	})
	if err != nil {
		return err
	}
	t.record(lower(name, "time", "s"), time.Since(began).Seconds())
	t.record(lower(name, "the agents' processor", "ms/pod"), milliseconds(used.agents)/float64(t.pods))
	t.record(lower(name, "the server's processor", "ms/pod"), milliseconds(used.server)/float64(t.pods))
	return nil
}

// usage is CPU time.
type usage struct{ agents, server time.Duration }

// use measures the CPU time of agents and server during do.
func (t fleetTrial) use(do func() error) (usage, error) {
	used := func() (u usage, err error) {
		if u.agents, err = cpuTime(t.Pids()); err != nil {
			return u, err
		}
		u.server, err = cpuTime(t.instance.groups())
		return u, err
	}
	before, err := used()
	if err != nil {
		return usage{}, err
	}
	if err := do(); err != nil {
		return usage{}, err
	}
	after, err := used()
	return usage{after.agents - before.agents, after.server - before.server}, err
}

// removeNodes deletes the Nodes of agents that have stopped.
func (t *trial) removeNodes(ctx context.Context) error {
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	return clients[0].do(ctx, request{method: http.MethodDelete, path: "/api/v1/nodes"})
}
