package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/certificates"
	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/eviction"
	"svc.dev/svc/svclet/eviction/threshold"
	"svc.dev/svc/svclet/networkpolicy"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/oom"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/shutdown"
)

// Config is what an agent is made with.
type Config struct {
	config.Flags
	config.Gates
	Configuration *config.Configuration
	// API is how the API server is reached; nil in standalone mode.
	API *rest.Config
	// ClientCertificate renews the certificate of API; nil if the agent does not.
	ClientCertificate *certificates.Client
	// Listeners are the agent's ports, from [Listen]; nil lets [New] open them.
	Listeners *server.Listeners
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
	// SetVerbosity sets the verbosity of the logs of the process; nil refuses that.
	SetVerbosity func(level string) error
	// Clock is the real one if it is nil.
	Clock clock.WithTickerAndDelayedExecution
}

// Agent runs the pods of one node.
type Agent struct {
	// ctx ends when Run returns, or when the context of New or of Run is done.
	ctx  context.Context
	stop context.CancelFunc
	common
	connections
	node   *node.Node
	pods   *pods
	server *server.Server // nil with enableServer: false
	tasks  tasks
}

// common is what every part of an agent is made with.
type common struct {
	Config
	name    string // of the node
	metrics *metrics.Metrics
	// thresholds are those of eviction, conditions what they say of the node.
	thresholds []threshold.Threshold
	conditions *eviction.Conditions
	// shutdown is whether the node shuts down.
	shutdown *shutdown.State
	// network has the rules of the pods' connections; nil if there are none.
	network *networkpolicy.Enforcer
	// networkDenied is whether this process may not change the machine's network.
	networkDenied bool
	// parameters are those of the kernel that the rules of connections need.
	parameters *nft.Parameters
}

// tasks are what an agent runs.
type tasks struct {
	// before run one after the other, before the agent adopts pods.
	before []func(context.Context)
	// parts run at the same time, from then until their context ends.
	parts []func(context.Context)
}

// add adds other tasks after those that there are.
func (t *tasks) add(other tasks) {
	t.before, t.parts = append(t.before, other.before...), append(t.parts, other.parts...)
}

// overrides replace parts of an agent in tests. Nil functions replace nothing.
type overrides struct {
	cgroups func(cgroups) cgroups
	objects func(objects) objects
	system  func() systemProcesses
}

// Listen opens the ports of an agent with this configuration, which the caller passes to
// [New] in Config.Listeners or closes. It changes nothing else. It returns nil with
// enableServer: false.
func Listen(ctx context.Context, c Config) (*server.Listeners, error) {
	if !ptr.Deref(c.Configuration.EnableServer, true) {
		return nil, nil
	}
	return server.Listen(ctx, serverOptions(common{Config: c}))
}

// New connects to the container runtime, opens the ports and makes the agent. It
// changes no pod before Run. The agent's connections end with ctx.
func New(ctx context.Context, c Config) (*Agent, error) { return newAgent(ctx, c, overrides{}) }

func newAgent(ctx context.Context, c Config, o overrides) (*Agent, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	name, err := nodeconfig.HostName(c.HostnameOverride)
	if err != nil {
		return nil, err
	}
	thresholds, err := readThresholds(c.Configuration)
	if err != nil {
		return nil, err
	}
	base := common{Config: c, name: name, metrics: metrics.New(name, c.Clock), thresholds: thresholds, conditions: &eviction.Conditions{}, shutdown: &shutdown.State{}, parameters: nft.NewParameters(c.RootDir)}
	if err := base.checkNetworkRights(ctx); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	conn, err := connect(ctx, base)
	if err != nil {
		stop()
		return nil, err
	}
	services := newServices(ctx, base, conn)
	a, err := assemble(ctx, stop, base, conn, services, o)
	if err != nil {
		stop()
		return nil, errors.Join(err, services.abandon(), conn.abandon())
	}
	return a, nil
}

// assemble makes the parts of an agent, each of those before it, and then the agent.
func assemble(ctx context.Context, stop context.CancelFunc, base common, conn connections, services *nodeServices, o overrides) (*Agent, error) {
	available, err := readResources(base)
	if err != nil {
		return nil, err
	}
	images, pulls, err := newImages(base, conn)
	if err != nil {
		return nil, err
	}
	var n *node.Node
	drivers, err := newCSI(base, conn, func() *node.Node { return n })
	if err != nil {
		return nil, err
	}
	queue := podmanager.NewQueue()
	held, err := newDevices(base, queue, func() *node.Node { return n })
	if err != nil {
		return nil, err
	}
	if n, err = newNode(base, conn, queue, services, available, images, drivers, held); err != nil {
		return nil, err
	}
	services.node = n.Object
	var networkTasks tasks
	base.network, networkTasks = networkPolicies(ctx, base, conn)
	p, podTasks, err := newPods(ctx, base, conn, queue, services, available, images, drivers, held, n, o)
	if err != nil {
		return nil, err
	}
	s, serverTasks, err := newServer(ctx, base, conn, images, pulls, p, n)
	if err != nil {
		return nil, err
	}
	killed := oomReports{event: conn.events.Node, counter: p.oomKills, driver: cgroup.Driver(base.Configuration.CgroupDriver)}
	all := tasks{parts: []func(context.Context){n.Run, killed.watch(oom.Open)}}
	all.add(renewal(base))
	all.add(recordsTask(conn, pulls))
	all.add(gracefulShutdown(base, conn, p, n))
	all.add(checkSkew(base, conn))
	all.add(checkResolver(base, conn.events.Node))
	all.add(podRules(base))
	all.add(podNetwork(ctx, base, conn))
	all.add(services.tasks)
	all.add(networkTasks)
	all.add(podTasks)
	all.add(serverTasks)
	return &Agent{ctx: ctx, stop: stop, common: base, connections: conn, node: n, pods: p, server: s, tasks: all}, nil
}

// Run runs the node's pods until ctx is done or the server fails. The pods keep
// running after it.
func (a *Agent) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer a.close()
	defer group.Wait()
	defer a.stop()
	stopped := context.AfterFunc(ctx, a.stop)
	defer stopped()
	failed := make(chan error, 1)
	if a.server != nil {
		group.Go(func() {
			if err := a.server.Serve(a.ctx, a.listeners); err != nil {
				failed <- fmt.Errorf("the agent's server: %w", err)
			}
		})
	}
	for _, step := range a.tasks.before {
		step(a.ctx)
	}
	a.adopt()
	for _, part := range a.tasks.parts {
		group.Go(func() { part(a.ctx) })
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

// adopt passes the pods that the runtime holds on to the pod manager, which would
// start them again otherwise. It waits for the runtime.
func (a *Agent) adopt() {
	for {
		held, err := a.runtime.Pods(a.ctx)
		if err == nil {
			if a.network != nil {
				a.network.Adopt(held)
			}
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
