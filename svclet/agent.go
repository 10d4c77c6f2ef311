package svclet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	objectstore "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/server/stats"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
	"svc.dev/svc/svclet/volume"
)

// Config is what an agent is made with.
type Config struct {
	config.Flags
	config.Gates
	Configuration *config.Configuration
	// API is how the API server is reached; nil for an agent by itself.
	API *rest.Config
	// Containerd is the agent's own, from [StartContainerd]; nil when the agent
	// uses another runtime.
	Containerd *containerd.Runtime
	// Version is the release that the agent reports ("v1.36.0").
	Version string
	// MakeCgroupRoot makes cgroupRoot where it is not there. kubelet and svclet
	// by themselves refuse to start then.
	MakeCgroupRoot bool
	// LogLinksDir is where collectors look for links to the logs of containers;
	// empty is /var/log/containers.
	LogLinksDir string
}

// Agent runs the pods of one node.
type Agent struct {
	Config
	name    string
	clock   clock.RealClock
	api     *api // nil without an API server
	metrics *metrics.Metrics
	runtime *runtime.Client
	machine node.Machine
	node    *node.Node
	server  *server.Server // nil with enableServer: false
	pods    *pods
	stats   *stats.Provider
	objects objects
	podCIDR string                  // what the runtime was told; of the goroutine of the node's status
	before  []func(context.Context) // what is done before any pod is looked at
	parts   []func(context.Context) // what runs until the context ends
	group   sync.WaitGroup
	stop    context.CancelFunc
}

// New connects to the container runtime and puts the agent together. Nothing is
// done to any pod before Run. ctx is that of the connection's life.
func New(ctx context.Context, c Config) (*Agent, error) {
	a := &Agent{Config: c, objects: noObjects{}}
	ctx, a.stop = context.WithCancel(ctx)
	if err := a.build(ctx); err != nil {
		a.stop()
		if a.server != nil {
			a.server.Close()
		}
		if a.pods != nil {
			a.pods.events.stop()
		}
		if a.runtime != nil {
			err = errors.Join(err, a.runtime.Close())
		}
		return nil, err
	}
	return a, nil
}

func (a *Agent) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.nameNode, a.connectAPI, a.connectRuntime, a.makePods, a.makeStats, a.makeServer, a.makeNode,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// nameNode is the host's name, in lower case, or that of --hostname-override.
func (a *Agent) nameNode(context.Context) error {
	var err error
	a.name, err = nodeconfig.HostName(a.HostnameOverride)
	a.metrics = metrics.New(a.name)
	return err
}

func (a *Agent) connectAPI(context.Context) error {
	if a.API == nil {
		return nil
	}
	var err error
	a.api, err = connect(a.API, a.clock)
	return err
}

// makePods makes all that runs pods.
func (a *Agent) makePods(ctx context.Context) error {
	c := a.Configuration
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	p := &pods{
		ctx: ctx, group: &a.group, clock: a.clock,
		workers: map[types.UID]*member{}, held: map[types.UID]runtime.Pod{},
		mirrored:   a.api != nil,
		maxBackOff: ptr.Deref(c.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{}).Duration,
		node:       a.nodeObject, nodeKnown: func() bool { return a.node.Known() },
	}
	a.pods = p
	p.operations = &operations{
		metrics: a.metrics,
		runtime: a.runtime, clock: a.clock, stands: map[types.UID]*stand{}, hostIPs: a.hostIPs,
		events: newRecorder(ctx, a.beats(), scheme, a.name, ptr.Deref(c.EventRecordQPS, 0), c.EventBurst),
	}
	a.makeObjects()
	p.objects = a.objects
	if err := a.makeVolumes(ctx); err != nil {
		return err
	}
	for _, step := range []func() error{a.makeCgroups, a.makeSystemCgroup, a.makeLogs, a.makeContainers, a.makeAdmission, a.makeSources} {
		if err := step(); err != nil {
			return err
		}
	}
	credentials, err := a.credentials()
	if err != nil {
		return err
	}
	p.images = image.New(image.Options{
		Runtime: a.runtime, Recorder: p.events, Credentials: credentials,
		MaxParallelPulls: parallelPulls(c), QPS: float32(ptr.Deref(c.RegistryPullQPS, 0)), Burst: int(c.RegistryBurst),
		MaxListed: int(ptr.Deref(c.NodeStatusMaxImages, 0)),
	})
	p.probes = probe.New(probe.Options{Executor: a.runtime, Recorder: p.events, Result: p.result, Version: a.Version})
	p.hooks = p.probes
	return nil
}

func (a *Agent) core() rest.Interface {
	if a.api == nil {
		return nil
	}
	return a.api.core
}

// beats is the client of events and heartbeats, which no rate limit delays.
func (a *Agent) beats() rest.Interface {
	if a.api == nil {
		return nil
	}
	return a.api.beats
}

// makeObjects makes what pods read from the API. Without an API server there
// is nothing to be read.
func (a *Agent) makeObjects() {
	if a.api == nil {
		return
	}
	store := objectstore.New(objectstore.Options{Client: a.api.client, Changed: a.pods.changed})
	a.objects = apiObjects{store, a.api}
	a.parts = append(a.parts, func(ctx context.Context) { <-ctx.Done(); store.Close() })
}

func (a *Agent) makeVolumes(ctx context.Context) error {
	var err error
	a.pods.volumes, err = volume.New(volume.Options{
		RootDir: a.RootDir, Objects: a.objects, UsagePeriod: a.Configuration.VolumeStatsAggPeriod.Duration,
		Allocatable: func() corev1.ResourceList { return a.nodeObject().Status.Allocatable },
	})
	if err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	if err := volume.ShareMounts(a.RootDir); err != nil {
		klog.FromContext(ctx).Error(err, "Mounts will not spread between containers", "dir", a.RootDir)
	}
	return nil
}

func (a *Agent) makeLogs() error {
	c := a.Configuration
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return fmt.Errorf("containerLogMaxSize: %w", err)
	}
	manager, err := logs.New(logs.Options{
		Runtime: a.runtime, Running: a.pods.running, Dir: c.PodLogsDir, LinkDir: cmp.Or(a.LogLinksDir, "/var/log/containers"),
		MaxSize: size.Value(), MaxFiles: int(ptr.Deref(c.ContainerLogMaxFiles, 0)), Workers: int(ptr.Deref(c.ContainerLogMaxWorkers, 0)),
		Interval: ptr.Deref(c.ContainerLogMonitorInterval, config.Default().FileCheckFrequency).Duration,
	})
	if err != nil {
		return err
	}
	a.pods.logs = manager
	a.parts = append(a.parts, manager.Run)
	return nil
}

// makeContainers makes the node's share in the configurations of containers.
func (a *Agent) makeContainers() error {
	host, err := container.ReadHost("/")
	if err != nil {
		return err
	}
	c := a.Configuration
	options := container.Options{
		PodLogs: c.PodLogsDir, ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain, ResolvConf: ptr.Deref(c.ResolverConfig, ""),
		SeccompDefault: ptr.Deref(c.SeccompDefault, false), SeccompRoot: filepath.Join(a.RootDir, "seccomp"),
		CPUCFSQuota: ptr.Deref(c.CPUCFSQuota, true), Host: host,
		SingleProcessOOMKill: ptr.Deref(c.SingleProcessOOMKill, false),
		LimitedSwap:          c.MemorySwap.SwapBehavior == config.LimitedSwap,
	}
	if c.CPUCFSQuotaPeriod != nil {
		options.CPUCFSQuotaPeriod = c.CPUCFSQuotaPeriod.Duration
	}
	a.pods.admission.AppArmor = host.AppArmor && !a.WithoutAppArmor
	a.pods.operations.handlers = func() []corev1.NodeRuntimeHandler { return a.nodeObject().Status.RuntimeHandlers }
	a.pods.operations.options = func() container.Options {
		current := options
		current.Allocatable = a.nodeObject().Status.Allocatable
		for _, ip := range a.hostIPs() {
			if parsed, err := netip.ParseAddr(ip); err == nil {
				current.NodeIPs = append(current.NodeIPs, parsed)
			}
		}
		return current
	}
	return nil
}

func (a *Agent) makeAdmission() error {
	sysctls, err := admit.NewSysctls(a.Configuration.AllowedUnsafeSysctls, a.machine.KernelVersion)
	if err != nil {
		return fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	a.pods.admission.Sysctls = sysctls
	return nil
}

// makeSources makes where pods come from, and where their statuses go.
func (a *Agent) makeSources() error {
	c := a.Configuration
	a.pods.statuses = status.New(status.Options{Core: a.core(), Written: a.metrics.StatusWritten})
	o := source.Options{
		NodeName: a.name, Core: a.core(),
		Path: c.StaticPodPath, FileCheckFrequency: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, URLHeader: http.Header(c.StaticPodURLHeader), HTTPCheckFrequency: c.HTTPCheckFrequency.Duration,
		Observed: a.pods.statuses.Observed, Gone: a.pods.statuses.Gone,
		NodeUID:  func(ctx context.Context) (types.UID, error) { return a.node.UID(ctx) },
		Recorder: a.pods.events.any,
	}
	var err error
	a.pods.sources, err = source.New(o)
	return err
}

// parallelPulls is how many images are pulled at once; 0 is any number.
func parallelPulls(c *config.Configuration) int {
	if ptr.Deref(c.SerializeImagePulls, true) {
		return 1
	}
	return int(ptr.Deref(c.MaxParallelImagePulls, 0))
}

// nodeObject is the node as it is now.
func (a *Agent) nodeObject() *corev1.Node { return a.node.Object() }

// hostIPs returns the node's addresses, the primary one first.
func (a *Agent) hostIPs() []string { return nodeconfig.HostIPs(a.nodeObject()) }

// makeNode makes the node's picture in the API.
func (a *Agent) makeNode(context.Context) error {
	c := a.Configuration
	reserved, err := nodeconfig.ParseReservations(c)
	if err != nil {
		return err
	}
	ips, err := nodeconfig.ParseNodeIPs(a.NodeIP)
	if err != nil {
		return err
	}
	o := node.Options{
		Name: a.name, Hostname: a.name, Core: a.beats(),
		Register: ptr.Deref(c.RegisterNode, true), Unschedulable: !a.RegisterSchedulable,
		Labels: a.NodeLabels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID,
		ControllerAttachDetach: ptr.Deref(c.EnableControllerAttachDetach, true),
		IPs:                    ips, Machine: a.machine,
		MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore, Reserved: reserved.Total(), Version: a.Version,
		Runtime:         a.runtimeStatus,
		Images:          func(ctx context.Context) ([]corev1.ContainerImage, error) { return a.pods.images.List(ctx) },
		MaxImages:       ptr.Deref(c.NodeStatusMaxImages, 50),
		UpdateFrequency: c.NodeStatusUpdateFrequency.Duration, ReportFrequency: c.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second,
		Recorder:      a.pods.events.any,
	}
	if a.api != nil {
		o.Coordination = a.api.coordination
	}
	if a.server != nil {
		o.Port = a.server.Port()
	}
	a.node, err = node.New(o)
	return err
}

// makeServer makes the agent's own server, whose port the node tells of.
func (a *Agent) makeServer(ctx context.Context) error {
	c := a.Configuration
	if !ptr.Deref(c.EnableServer, true) {
		return nil
	}
	o := server.Options{
		NodeName: a.name, Address: c.Address, Port: c.Port, ReadOnlyPort: c.ReadOnlyPort,
		HealthzBindAddress: c.HealthzBindAddress, HealthzPort: ptr.Deref(c.HealthzPort, 0),
		TLSCertFile: c.TLSCertFile, TLSPrivateKeyFile: c.TLSPrivateKeyFile, CertDirectory: a.CertDir,
		TLSMinVersion: c.TLSMinVersion, TLSCipherSuites: c.TLSCipherSuites, TLSCurvePreferences: c.TLSCurvePreferences,
		ClientCAFile:  c.Authentication.X509.ClientCAFile,
		AnonymousAuth: ptr.Deref(c.Authentication.Anonymous.Enabled, true),
		TokenWebhook:  ptr.Deref(c.Authentication.Webhook.Enabled, false), TokenWebhookCacheTTL: c.Authentication.Webhook.CacheTTL.Duration,
		AuthorizationMode: string(c.Authorization.Mode),
		AuthorizedTTL:     c.Authorization.Webhook.CacheAuthorizedTTL.Duration, UnauthorizedTTL: c.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		EnableDebuggingHandlers: ptr.Deref(c.EnableDebuggingHandlers, true), EnableSystemLogHandler: ptr.Deref(c.EnableSystemLogHandler, true),
		EnableProfilingHandler: ptr.Deref(c.EnableProfilingHandler, true), EnableDebugFlagsHandler: ptr.Deref(c.EnableDebugFlagsHandler, true),
		StreamingConnectionIdleTimeout: max(c.StreamingConnectionIdleTimeout.Duration, 0),
		SyncLoopTimeout:                max(2*c.SyncFrequency.Duration, 5*time.Minute),
	}
	shown := config.Shown(c)
	parts := server.Parts{
		Pods: served{a.pods, a.runtime}, Runtime: a.runtime, SyncLoop: a.pods,
		Configz: func() any { return shown }, Clock: a.clock,
	}
	if a.api != nil {
		parts.Reviews = a.api.client
	}
	a.observe(&parts)
	var err error
	if a.server, err = server.New(o, parts); err != nil {
		return err
	}
	return a.server.Listen(ctx)
}

// Run runs the node's pods until ctx is done or the server fails. Pods go on
// after it.
func (a *Agent) Run(ctx context.Context) error {
	defer a.runtime.Close()
	defer a.pods.events.stop()
	defer a.group.Wait()
	defer a.stop()
	stopped := context.AfterFunc(ctx, a.stop)
	defer stopped()
	ctx = a.pods.ctx
	failed := make(chan error, 1)
	if a.server != nil {
		a.group.Go(func() {
			if err := a.server.Serve(ctx); err != nil {
				failed <- fmt.Errorf("the agent's server: %w", err)
			}
		})
	}
	for _, step := range a.before {
		step(ctx)
	}
	if err := a.adopt(ctx); err != nil {
		return err
	}
	updates := make(chan source.Update)
	if a.Containerd != nil && a.api != nil {
		a.parts = append(a.parts, a.followPodCIDRs)
	}
	a.parts = append(a.parts, a.node.Run, a.pods.probes.Run, a.pods.statuses.Run, a.watchRuntime,
		func(ctx context.Context) { a.pods.sources.Run(ctx, updates) },
		func(context.Context) { a.pods.run(updates) },
	)
	for _, part := range a.parts {
		a.group.Go(func() { part(ctx) })
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
