package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
	"svc.dev/svc/svclet/volume"
)

// Config is what an agent is made with.
type Config struct {
	config.Flags
	config.Gates
	Configuration *config.Configuration
	// API is how the API server is reached; nil in standalone mode.
	API *rest.Config
	// Containerd is the agent's own, from [StartContainerd]; nil if the agent uses
	// another runtime.
	Containerd *containerd.Runtime
	// Version is the release that the agent reports ("v1.36.0").
	Version string
	// MakeCgroupRoot creates cgroupRoot if it does not exist. kubelet, and svclet by
	// itself, refuse to start then.
	MakeCgroupRoot bool
	// LogLinksDir has the links to the logs of containers that collectors of logs
	// read; empty means /var/log/containers.
	LogLinksDir string
	// Clock is the real one if it is nil.
	Clock clock.WithTickerAndDelayedExecution
}

// Agent runs the pods of one node.
type Agent struct {
	Config
	// ctx ends when Run returns, or when the context of New or of Run is done.
	ctx  context.Context
	stop context.CancelFunc

	name         string
	reservations nodeconfig.Reservations
	machine      node.Machine
	metrics      *metrics.Metrics
	clients      *apiclient.Clients // nil in standalone mode
	runtime      *runtime.Client
	events       *events.Recorder
	images       *image.Manager
	node         *node.Node
	listeners    *server.Listeners // nil with enableServer: false
	server       *server.Server    // the same
	pods         *podmanager.Manager
	queue        *podmanager.Queue
	updates      chan source.Update
	executor     *executor.Executor
	statuses     *status.Manager
	volumes      *volume.Manager
	probeMetrics []prometheus.Collector

	// before are steps that Run takes before it adopts pods, parts what it runs
	// from then on until its context ends.
	before, parts []func(context.Context)
	group         sync.WaitGroup
}

// overrides replace parts of an agent in tests. Nil functions replace nothing.
type overrides struct {
	cgroups func(cgroups) cgroups
	objects func(objects) objects
}

// New connects to the container runtime, opens the ports and makes the agent. It
// changes no pod before Run. The agent's connections end with ctx.
func New(ctx context.Context, c Config) (*Agent, error) { return newAgent(ctx, c, overrides{}) }

func newAgent(ctx context.Context, c Config, o overrides) (*Agent, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	a := &Agent{Config: c, queue: podmanager.NewQueue(), updates: make(chan source.Update)}
	a.ctx, a.stop = context.WithCancel(ctx)
	// Each step uses what the steps before it have made.
	for _, step := range []func(overrides) error{a.connect, a.makeNode, a.makePods, a.makeServer} {
		if err := step(o); err != nil {
			return nil, errors.Join(err, a.abandon())
		}
	}
	return a, nil
}

// abandon releases what the steps of New have made, if a later step fails.
func (a *Agent) abandon() error {
	a.stop()
	if a.listeners != nil {
		a.listeners.Close()
	}
	if a.events != nil {
		a.events.Stop()
	}
	if a.runtime != nil {
		return a.runtime.Close()
	}
	return nil
}

// Run runs the node's pods until ctx is done or the server fails. The pods keep
// running after it.
func (a *Agent) Run(ctx context.Context) error {
	defer a.runtime.Close()
	defer a.events.Stop()
	defer a.group.Wait()
	defer a.stop()
	stopped := context.AfterFunc(ctx, a.stop)
	defer stopped()
	failed := make(chan error, 1)
	if a.server != nil {
		a.group.Go(func() {
			if err := a.server.Serve(a.ctx, a.listeners); err != nil {
				failed <- fmt.Errorf("the agent's server: %w", err)
			}
		})
	}
	for _, step := range a.before {
		step(a.ctx)
	}
	a.adopt()
	for _, part := range a.parts {
		a.group.Go(func() { part(a.ctx) })
	}
	select {
	case <-a.ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// adoptRetry is the pause before the runtime is asked again for its pods.
const adoptRetry = time.Second

// adopt tells the pod manager which pods the runtime holds: without that they would
// be started again. It waits for the runtime.
func (a *Agent) adopt() {
	for {
		held, err := a.runtime.Pods(a.ctx)
		if err == nil {
			a.pods.Adopt(held)
			return
		}
		if a.ctx.Err() != nil {
			return
		}
		klog.FromContext(a.ctx).Error(err, "Failed to list pods of the container runtime at start, will retry")
		select {
		case <-a.ctx.Done():
			return
		case <-a.Clock.After(adoptRetry):
		}
	}
}

// watchRuntime adds changes of pods in the runtime to the queue.
func (a *Agent) watchRuntime(ctx context.Context) {
	if err := a.runtime.Watch(ctx, a.queue.Observe); err != nil && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "Failed to watch the container runtime")
	}
}
