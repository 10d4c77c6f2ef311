package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/devices"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/runtime"
)

// resources are what the machine has, and what of it is reserved.
type resources struct {
	machine  node.Machine
	reserved nodeconfig.Reservations
}

// readResources reads what the machine has. It makes the root directory, whose file
// system is the machine's storage.
func readResources(base common) (resources, error) {
	var r resources
	var err error
	if r.reserved, err = nodeconfig.ParseReservations(base.Configuration); err != nil {
		return resources{}, err
	}
	if err := os.MkdirAll(base.RootDir, 0o750); err != nil {
		return resources{}, fmt.Errorf("--root-dir: %w", err)
	}
	if r.machine, err = node.ReadMachine("/", base.RootDir); err != nil {
		return resources{}, err
	}
	if !ptr.Deref(base.Configuration.LocalStorageCapacityIsolation, true) {
		r.machine.Storage = 0 // so that the Node does not show it
	}
	return r, nil
}

// newNode makes the agent's Node.
func newNode(base common, conn connections, queue *podmanager.Queue, services *nodeServices, available resources, images *image.Manager, drivers *csi.Manager, held *devices.Manager) (*node.Node, error) {
	c := base.Configuration
	ips, err := nodeconfig.ParseNodeIPs(base.NodeIP)
	if err != nil {
		return nil, err
	}
	o := node.Options{
		Name: base.name, Hostname: base.name, Core: conn.heartbeats(),
		Register: ptr.Deref(c.RegisterNode, true), Unschedulable: !base.RegisterSchedulable,
		Labels: base.NodeLabels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID,
		ExternalCloud:          base.CloudProvider == config.CloudExternal,
		ControllerAttachDetach: ptr.Deref(c.EnableControllerAttachDetach, true), LocalVolumes: localDir(base),
		IPs: ips, Machine: available.machine,
		MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore, Reserved: reserved(base, available), Version: base.Version,
		Runtime:      func(ctx context.Context) (node.RuntimeStatus, error) { return runtimeStatus(ctx, conn.runtime) },
		VolumesInUse: drivers.InUse,
		Devices:      held.Resources,
		ShownChanged: queue.NodeChanged,
		Features:     declaredFeatures(base),
		Problems:     base.shutdown.Problems,
		Lacks:        services.lacks,
		Pressure:     func() node.Pressure { return pressure(base.conditions) },
		PodCIDRs:     c.PodCIDR,
		Unreset:      held.Unreset,
		Reset:        held.Reset,
		Images:       images.List, MaxImages: ptr.Deref(c.NodeStatusMaxImages, 50),
		UpdateFrequency: c.NodeStatusUpdateFrequency.Duration, ReportFrequency: c.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second,
		Recorder:      conn.events.Any(), Clock: base.Clock,
	}
	if base.Containerd == nil { // The agent's own has them in its configuration.
		o.SetPodCIDRs = conn.runtime.SetPodCIDRs
	}
	if conn.clients != nil {
		o.Coordination = conn.clients.Coordination
	}
	if conn.listeners != nil {
		o.Port = conn.listeners.Port()
	}
	return node.New(o)
}

// runtimeStatus returns the status of the container runtime, for that of the Node.
func runtimeStatus(ctx context.Context, client *runtime.Client) (node.RuntimeStatus, error) {
	s, err := client.Status(ctx)
	if err != nil {
		return node.RuntimeStatus{}, err
	}
	version, err := client.Version(ctx)
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
