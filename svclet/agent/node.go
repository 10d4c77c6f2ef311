package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
)

// connect names the node, and makes the clients of the API server and of the
// container runtime and the recorder of events.
func (a *Agent) connect(overrides) error {
	var err error
	if a.name, err = nodeconfig.HostName(a.HostnameOverride); err != nil {
		return err
	}
	a.metrics = metrics.New(a.name)
	if a.API != nil {
		if a.clients, err = apiclient.New(a.API, a.Clock); err != nil {
			return err
		}
	}
	if a.runtime, err = runtime.Connect(a.ctx, runtimeOptions(a.Configuration, a.metrics, a.Clock)); err != nil {
		return err
	}
	scheme, err := apiclient.NewScheme()
	if err != nil {
		return err
	}
	c := a.Configuration
	a.events = events.New(a.ctx, a.heartbeats(), scheme, a.name, ptr.Deref(c.EventRecordQPS, 0), c.EventBurst)
	return nil
}

// core returns the client of pods, nil in standalone mode.
func (a *Agent) core() rest.Interface {
	if a.clients == nil {
		return nil
	}
	return a.clients.Core
}

// heartbeats returns the client of the Node and of events, which has no rate limit;
// nil in standalone mode.
func (a *Agent) heartbeats() rest.Interface {
	if a.clients == nil {
		return nil
	}
	return a.clients.Heartbeats
}

// minSyncFrequency is the shortest --sync-frequency that takes effect.
const minSyncFrequency = time.Second

func runtimeOptions(c *config.Configuration, m *metrics.Metrics, clock clock.Clock) runtime.Options {
	return runtime.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint,
		ImageEndpoint:   c.ImageServiceEndpoint,
		RequestTimeout:  c.RuntimeRequestTimeout.Duration,
		CheckPeriod:     max(c.SyncFrequency.Duration, minSyncFrequency),
		Record:          m.RuntimeOperation,
		Clock:           clock,
	}
}

// makeNode opens the ports, which the Node's status names, and makes the images and
// the Node, which shows them.
func (a *Agent) makeNode(overrides) error {
	c := a.Configuration
	var err error
	if a.reservations, err = nodeconfig.ParseReservations(c); err != nil {
		return err
	}
	ips, err := nodeconfig.ParseNodeIPs(a.NodeIP)
	if err != nil {
		return err
	}
	// The machine's storage is the file system of the root directory.
	if err := os.MkdirAll(a.RootDir, 0o750); err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	if a.machine, err = node.ReadMachine("/", a.RootDir); err != nil {
		return err
	}
	if !ptr.Deref(c.LocalStorageCapacityIsolation, true) {
		a.machine.Storage = 0 // so that the Node does not show it
	}
	credentials, err := a.credentials()
	if err != nil {
		return err
	}
	a.images = image.New(image.Options{
		Runtime: a.runtime, Recorder: a.events, Credentials: credentials, Clock: a.Clock,
		MaxParallelPulls: parallelPulls(c), QPS: float32(ptr.Deref(c.RegistryPullQPS, 0)), Burst: int(c.RegistryBurst),
		MaxListed: int(ptr.Deref(c.NodeStatusMaxImages, 0)),
	})
	o := node.Options{
		Name: a.name, Hostname: a.name, Core: a.heartbeats(),
		Register: ptr.Deref(c.RegisterNode, true), Unschedulable: !a.RegisterSchedulable,
		Labels: a.NodeLabels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID,
		ControllerAttachDetach: ptr.Deref(c.EnableControllerAttachDetach, true),
		IPs:                    ips, Machine: a.machine,
		MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore, Reserved: a.reservations.Total(), Version: a.Version,
		Runtime: a.runtimeStatus, PodCIDRs: c.PodCIDR,
		Images: a.images.List, MaxImages: ptr.Deref(c.NodeStatusMaxImages, 50),
		UpdateFrequency: c.NodeStatusUpdateFrequency.Duration, ReportFrequency: c.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second,
		Recorder:      a.events.Any(), Clock: a.Clock,
	}
	if a.Containerd == nil { // The agent's own has them in its configuration.
		o.SetPodCIDRs = a.runtime.SetPodCIDRs
	}
	if a.clients != nil {
		o.Coordination = a.clients.Coordination
	}
	if ptr.Deref(c.EnableServer, true) {
		if a.listeners, err = server.Listen(a.ctx, serverOptions(a.name, a.Config)); err != nil {
			return err
		}
		o.Port = a.listeners.Port()
	}
	a.node, err = node.New(o)
	return err
}

// parallelPulls returns how many images are pulled at once; 0 means any number.
func parallelPulls(c *config.Configuration) int {
	if ptr.Deref(c.SerializeImagePulls, true) {
		return 1
	}
	return int(ptr.Deref(c.MaxParallelImagePulls, 0))
}

// runtimeStatus returns the status of the container runtime, for that of the Node.
func (a *Agent) runtimeStatus(ctx context.Context) (node.RuntimeStatus, error) {
	s, err := a.runtime.Status(ctx)
	if err != nil {
		return node.RuntimeStatus{}, err
	}
	version, err := a.runtime.Version(ctx)
	if err != nil {
		return node.RuntimeStatus{}, err
	}
	return node.RuntimeStatus{
		Name: version.RuntimeName, Version: versionNumbers(version.RuntimeVersion),
		Conditions: s.Conditions, Handlers: s.Handlers, Features: s.Features,
	}, nil
}

// versionNumbers returns a version without what distributions append to it.
func versionNumbers(text string) string {
	if v, err := utilversion.ParseSemantic(text); err == nil {
		return v.String()
	}
	if v, err := utilversion.ParseGeneric(text); err == nil {
		return v.String()
	}
	return text
}
