package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/releases"
	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/host"
	"svc.dev/svc/svclet/server"
)

// node runs pods on this machine: a node agent and, unless the user names
// another runtime, a containerd.
type node struct {
	component.Task
	options  *NodeOptions
	gates    config.Gates
	dir      datadir.Dir
	server   *options.Options
	messages io.Writer
	program  string
	clock    clock.WithTicker
	// shared means that other machines may be the cluster's first node.
	shared bool

	// prepare sets these. unable says why this machine cannot run pods; then the
	// others may be empty.
	unable   error
	name     string
	programs containerd.Programs

	keys   *certificates
	access *podAccess
	// runtime is nil if the user names another one.
	runtime *containerd.Runtime
	version string
	agent   bool // Go was called
	// cgroupDriver is the agent's, once its locks are held: the container runtime may decide it.
	cgroupDriver string
	// locks and listeners are the agent's, from before anything is changed.
	locks     agent.Locks
	listeners *server.Listeners
}

// nodeGates returns the feature gates of the agent: those of the release that the server
// has, but for the streams of lists, which svc's servers have only if they are asked for.
func nodeGates(r release.Release) (config.Gates, error) {
	set, err := gates.At(releases.Release(r.Minor), utilfeature.DefaultFeatureGate)
	if err != nil {
		return config.Gates{}, err
	}
	of := config.NewGates(set)
	of.UserNamespaces = of.UserNamespaces || set.Enabled("UserNamespacesSupport")  // its name since 1.29
	of.WithoutInitResize = !set.Enabled("InPlacePodVerticalScalingInitContainers") // svclet itself has the gates of 1.28
	of.WithoutRestartAll = !set.Enabled("RestartAllContainersOnContainerExits")
	of.QuotaOfExclusiveCPUs = !set.Enabled("DisableCPUQuotaWithExclusiveCPUs")
	of.WatchList = utilfeature.DefaultFeatureGate.Enabled(features.WatchList)
	return of, nil
}

// Name implements component.Component.
func (*node) Name() string { return "node" }

// prepare finds out whether this machine can run pods. If it cannot, that is an
// error only with --node=true.
func (n *node) prepare() error {
	err := n.checkAuthorization()
	if err == nil {
		n.programs, err = n.options.programs()
	}
	if err == nil {
		n.name, err = n.options.nodeName()
	}
	if err == nil && n.options.endpoint == "" {
		// An error of Ranges is returned when the node starts.
		if ranges, readErr := n.options.Containerd(n.dir, n.programs).Ranges(); readErr == nil {
			err = checkOverlap(ranges, &n.server.Network)
		}
	}
	return n.giveUp(err)
}

// checkAuthorization returns an error if the agent would have no permissions, unless
// the user requires a node: roles may be bound to it.
func (n *node) checkAuthorization() error {
	if n.options.Mode == NodeAuto && !n.server.Authorization.PermitsNodes() {
		return fmt.Errorf("--authorization-mode: nodes have permissions with the mode %s, add it", authorization.Node)
	}
	return nil
}

// giveUp makes the control plane go on without a node, or returns the error if
// the user requires one.
func (n *node) giveUp(err error) error {
	if err != nil && n.options.Mode == NodeAlways {
		return fmt.Errorf("--node=%s: %w", n.options.Mode, err)
	}
	n.unable = err
	return nil
}

// running reports whether pods run on this machine.
func (n *node) running() bool { return n.agent }

// Start implements component.Component.
func (n *node) Start(ctx context.Context) error {
	if n.unable != nil {
		return nil
	}
	err := n.reserve(ctx)
	if err == nil {
		for _, problem := range prepareHost(ctx) {
			klog.FromContext(ctx).Info("Failed to prepare the machine for pods, some of them may lack resources", "problem", problem)
		}
		err = n.run(ctx)
	}
	if err == nil {
		return nil
	}
	n.Task.Stop()
	if n.runtime != nil && !n.runtime.Adopted && ctx.Err() == nil {
		// The agent gave it no pods to run. One of an earlier start keeps running, as its pods do.
		err, n.runtime = errors.Join(err, n.runtime.Stop(ctx)), nil
	}
	n.disconnect()
	if ctx.Err() != nil {
		return err
	}
	return n.giveUp(err)
}

// Ready implements component.Component.
func (n *node) Ready(context.Context) (string, error) {
	if n.unable != nil {
		return "none: " + strings.ReplaceAll(n.unable.Error(), "\n", "; "), nil
	}
	return n.name + ", " + n.version, nil
}

// Failed implements component.Component. What made a start fail is no failure of
// a control plane that goes on without a node.
func (n *node) Failed() <-chan error {
	if n.unable != nil {
		return nil
	}
	return n.Task.Failed()
}

// reserve takes the agent's locks and opens its ports. It changes nothing else, so that what
// runs here already, another agent for example, goes on after an error.
func (n *node) reserve(ctx context.Context) (err error) {
	c := n.agentConfig(n.options.endpoint)
	if err := agent.UseCgroupDriver(ctx, c.Gates, c.Configuration); err != nil {
		return err
	}
	n.cgroupDriver = c.Configuration.CgroupDriver
	if n.locks, err = agent.Lock(c); err != nil {
		return err
	}
	if n.options.endpoint == "" {
		if err := agent.RefuseForeignPods(c.Configuration, n.dir.Containerd()); err != nil {
			return err
		}
	}
	n.listeners, err = agent.Listen(ctx, c)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: choose other ports with --node-port and --node-healthz-port", err)
	}
	return err
}

// release ends what reserve has reserved and no agent uses any more.
func (n *node) release() {
	if n.listeners != nil {
		n.listeners.Close()
	}
	n.locks.Close()
	n.listeners, n.locks = nil, nil
}

// run starts the container runtime and the agent.
func (n *node) run(ctx context.Context) error {
	endpoint := n.options.endpoint
	n.version = endpoint
	if endpoint == "" {
		c := n.options.Containerd(n.dir, n.programs)
		c.AwaitPodCIDRs = c.PodNetwork && n.shared
		if n.gates.UserNamespaces {
			c.PassableFrom = string(n.dir)
		}
		own, err := agent.StartContainerd(ctx, c)
		if err != nil {
			return err
		}
		for _, warning := range own.Warnings {
			fmt.Fprintf(n.messages, "%s: %s\n", n.program, warning)
		}
		n.runtime, endpoint, n.version = own, own.Endpoint, "containerd "+own.Version
	}
	created := make(chan error, 1)
	n.Go(ctx, n.Name(), func(ctx context.Context) error {
		c := n.agentConfig(endpoint)
		agent, err := agent.New(ctx, c)
		if err == nil {
			err = n.locks.LockCgroup(c) // which did not exist before the first start
		}
		created <- err
		if err != nil {
			return err
		}
		return agent.Run(ctx)
	})
	err := <-created
	n.agent = err == nil
	if err == nil && n.runtime != nil && !n.runtime.HostNetworkOnly() {
		return n.access.start(ctx, n.runtime)
	}
	return err
}

// prepareHost sets limits of this process and settings of the kernel. It keeps
// swap and the kernel's settings as they are, because svc up may run on a
// machine with other uses, unlike svclet.
func prepareHost(ctx context.Context) []error {
	defaults := config.Default()
	return host.Prepare(ctx, host.Options{
		ProtectKernelDefaults: true, OOMScoreAdj: *defaults.OOMScoreAdj, MaxOpenFiles: defaults.MaxOpenFiles,
	})
}

// agentConfig is the agent's configuration. The agent serves on all addresses
// of the machine, because the API server connects to that of the node, and
// refuses anonymous requests.
func (n *node) agentConfig(endpoint string) agent.Config {
	flags, c := config.DefaultFlags(), config.Default()
	flags.HostnameOverride = n.name
	flags.RootDir = n.dir.Svclet()
	if n.options.ExternalCloud {
		flags.CloudProvider = config.CloudExternal
	}
	flags.ServiceProxy, flags.NetworkPolicy, flags.DNS = n.options.proxy, n.options.policies, n.options.dns
	flags.PodNetwork = n.options.PodNetwork
	flags.CertDir = filepath.Join(flags.RootDir, "pki")
	c.FailSwapOn, c.FailCgroupV1 = ptr.To(false), ptr.To(false)
	// Pods share the disks with the other uses of this machine, which may well have
	// filled most of them. Images that were loaded cannot be pulled again, so unused
	// ones are removed only when a threshold is met.
	c.ImageGCHighThresholdPercent = ptr.To[int32](100)
	// The first pods of a new cluster need several images. A slow one does not hold up the
	// others.
	c.SerializeImagePulls, c.MaxParallelImagePulls = ptr.To(false), ptr.To[int32](maxImagePulls)
	c.EvictionHard = map[string]string{"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi", "nodefs.inodesFree": "1%"}
	c.ContainerRuntimeEndpoint = endpoint
	c.CgroupDriver = cmp.Or(n.cgroupDriver, c.CgroupDriver)
	c.CgroupRoot = cmp.Or(n.options.cgroupRoot, n.dir.Cgroup())
	c.PodLogsDir = n.dir.PodLogs()
	c.ResolverConfig = &n.options.resolvConf
	c.Port, c.ReadOnlyPort, c.HealthzPort = n.options.port, 0, ptr.To(n.options.healthzPort)
	c.TLSCertFile, c.TLSPrivateKeyFile = n.keys.Certificate("node-serving"), n.keys.Key("node-serving")
	c.Authentication.X509.ClientCAFile = n.keys.Certificate("ca")
	c.Authentication.Anonymous.Enabled = ptr.To(false)
	c.Authentication.Webhook.Enabled = ptr.To(true)
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	return agent.Config{
		Flags: flags, Gates: n.gates, Configuration: c, Containerd: n.runtime, Listeners: n.listeners,
		MakeCgroupRoot: n.options.cgroupRoot == "", LogLinksDir: n.dir.LogLinks(),
		API:          n.keys.client("node"),
		SetVerbosity: func(level string) error { _, err := logs.GlogSetter(level); return err },
		Version:      release.Public(n.server.Release, release.SVCVersion()).Info().GitVersion,
	}
}

// maxImagePulls is how many images the node of svc up pulls at once.
const maxImagePulls = 5

// nodeStopTimeout is the agent's part of stopTimeout.
const nodeStopTimeout = 4 * time.Second

// Stop implements component.Component. It stops the agent and disconnects from
// the container runtime; pods keep running. An agent that waits for the kernel,
// for example for a mount, is left behind, because etcd has to be stopped in
// order.
func (n *node) Stop() error {
	ended := make(chan struct{})
	go func() { n.access.Stop(); n.Task.Stop(); close(ended) }()
	select {
	case <-ended:
	case <-n.clock.After(nodeStopTimeout):
		fmt.Fprintf(n.messages, "%s: the node agent has not ended within %s, and is left behind\n", n.program, nodeStopTimeout)
		return nil
	}
	n.disconnect()
	return nil
}

// disconnect ends the reservations, and leaves the container runtime running.
func (n *node) disconnect() {
	n.release()
	if n.runtime != nil {
		n.runtime.Close()
		n.runtime = nil
	}
}
