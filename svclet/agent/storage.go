package agent

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/devices"
	"svc.dev/svc/svclet/localvolume"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/plugins"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/projectquota"
	"svc.dev/svc/svclet/volume"
	"svc.dev/svc/svclet/volumeexpansion"
)

// newVolumes makes the volumes of pods.
func newVolumes(ctx context.Context, base common, conn connections, objects objects, drivers *csi.Manager, n *node.Node, created func(), abnormal func(uid types.UID, volume, message string)) (*volume.Manager, error) {
	var quotas volume.Quotas
	if base.Quotas {
		quotas = projectquota.New()
	}
	volumes, err := volume.New(volume.Options{
		Quotas: quotas,
		CSI:    drivers,
		Images: func(ctx context.Context) error {
			version, err := conn.runtime.Version(ctx)
			if err != nil {
				return err
			}
			return mountsImages(version.RuntimeName, version.RuntimeVersion)
		},
		RootDir: base.RootDir, Objects: objects, UsagePeriod: base.Configuration.VolumeStatsAggPeriod.Duration, Clock: base.Clock,
		Allocatable: func() corev1.ResourceList { return n.Object().Status.Allocatable },
		NodeLabels:  func() map[string]string { return n.Object().Labels },
		LocalDir:    localDir(base), LocalCreated: created,
		Abnormal: abnormal, Measured: base.metrics.VolumeOperation, MigratePortworx: base.MigratePortworx,
		PluginDir: base.Configuration.VolumePluginDir, NodeName: base.name,
		Expansion: newExpansion(base, conn),
	})
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	if err := volume.ShareMounts(base.RootDir); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to share the mounts of the root directory, mounts will not propagate between containers", "dir", base.RootDir)
	}
	return volumes, nil
}

// firstWithImages are the first versions of container runtimes that mount images. Older ones
// ignore the image, and fail to mount the directory without a name.
var firstWithImages = map[string]string{"containerd": "2.1.0", "cri-o": "1.31.0"}

// mountsImages returns why a container runtime does not mount images, nil if it does, or may.
func mountsImages(name, version string) error {
	first := firstWithImages[name]
	if first == "" {
		return nil
	}
	is, err := utilversion.ParseGeneric(version)
	if err != nil || is.AtLeast(utilversion.MustParseGeneric(first)) {
		return nil // A version of the runtime's developers is newer.
	}
	return fmt.Errorf("volumes of type image need a container runtime that mounts images: %s %s does not, %s and newer ones do", name, versionNumbers(version), first)
}

// newCSI makes what publishes the volumes of CSI drivers. n returns the agent's Node,
// which is made later.
func newCSI(base common, conn connections, n func() *node.Node) (*csi.Manager, error) {
	host, err := container.ReadHost("/")
	if err != nil {
		return nil, err
	}
	o := csi.Options{
		RootDir: base.RootDir, NodeName: base.name, Mounted: volume.IsMounted, SELinux: host.SELinux, Health: base.VolumeHealth,
		ControllerAttaches: ptr.Deref(base.Configuration.EnableControllerAttachDetach, true),
		Node:               func() *corev1.Node { return n().Object() },
		InUseChanged:       func() { n().Changed() },
		Clock:              base.Clock,
		Expansion:          newExpansion(base, conn),
	}
	if conn.clients != nil {
		o.Client = conn.clients.Client
	}
	drivers, err := csi.New(o)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	return drivers, nil
}

// newExpansion makes what decides when volumes are expanded.
func newExpansion(base common, conn connections) *volumeexpansion.Manager {
	o := volumeexpansion.Options{NodeName: base.name, Clock: base.Clock, Events: conn.events.Any()}
	if conn.clients != nil {
		o.Client = conn.clients.Client
	}
	return volumeexpansion.New(o)
}

// pluginTasks register plugins, and refresh the volumes of CSI drivers and those that have grown.
func pluginTasks(base common, drivers *csi.Manager, held *devices.Manager, prepared preparedClaims, volumes *volume.Manager, queue *podmanager.Queue) tasks {
	handlers := map[string]plugins.Handler{registerapi.CSIPlugin: drivers, registerapi.DevicePlugin: held}
	if prepared.manager != nil {
		handlers[registerapi.DRAPlugin] = prepared.manager
	}
	watcher := plugins.New(plugins.Options{Dir: drivers.Dir(), Clock: base.Clock, Handlers: handlers})
	return tasks{parts: []func(context.Context){watcher.Run, drivers.RunAllocatable, drivers.Run, func(ctx context.Context) { volumes.Run(ctx, queue.ObjectsChanged) }}}
}

// localDir returns the absolute path of the directory of volumes of the provisioner
// svc.dev/local-path.
func localDir(base common) string {
	dir, err := filepath.Abs(filepath.Join(base.RootDir, "local-volumes"))
	if err != nil {
		return ""
	}
	return dir
}

// newLocalVolumes makes what removes the directories of deleted volumes. In standalone
// mode there are none.
func newLocalVolumes(base common, conn connections) (created func(), of func(*volume.Manager) tasks) {
	if conn.clients == nil {
		return nil, func(*volume.Manager) tasks { return tasks{} }
	}
	var volumes *volume.Manager
	manager := localvolume.New(localvolume.Options{
		Dir: localDir(base), Node: base.name, Core: conn.clients.Core, Client: conn.clients.Client, Clock: base.Clock,
		Remove: func(ctx context.Context, dir string) error { return volumes.RemoveLocal(ctx, dir) },
	})
	return manager.Created, func(v *volume.Manager) tasks {
		volumes = v
		return tasks{parts: []func(context.Context){manager.Run}}
	}
}

// DefaultLogLinksDir has the links to the logs of containers unless [Config] names another directory.
const DefaultLogLinksDir = "/var/log/containers"

// newLogs makes what links, rotates and removes the logs of containers. running
// returns those of the containers that run.
func newLogs(base common, conn connections, running func() []logs.Container) (*logs.Manager, error) {
	c := base.Configuration
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return nil, fmt.Errorf("containerLogMaxSize: %w", err)
	}
	return logs.New(logs.Options{
		Runtime: conn.runtime, Running: running, Dir: c.PodLogsDir, LinkDir: cmp.Or(base.LogLinksDir, DefaultLogLinksDir), Clock: base.Clock,
		MaxSize: size.Value(), MaxFiles: int(ptr.Deref(c.ContainerLogMaxFiles, 0)), Workers: int(ptr.Deref(c.ContainerLogMaxWorkers, 0)),
		Interval: ptr.Deref(c.ContainerLogMonitorInterval, config.Default().FileCheckFrequency).Duration,
	})
}

// containerOptions returns the node's part of the configurations of containers, but
// for what changes with the Node.
func containerOptions(base common, allocations *allocation.Manager) (container.Options, error) {
	host, err := container.ReadHost("/")
	if err != nil {
		return container.Options{}, err
	}
	c := base.Configuration
	options := container.Options{
		PodLogs: c.PodLogsDir, ClusterDNS: c.ClusterDNS, ClusterDomain: clusterDomain(base), ResolvConf: ptr.Deref(c.ResolverConfig, ""),
		SeccompDefault: ptr.Deref(c.SeccompDefault, false), SeccompRoot: filepath.Join(base.RootDir, "seccomp"),
		DefaultSysctls: c.DefaultPodSysctls, CPUCFSQuota: ptr.Deref(c.CPUCFSQuota, true), Host: host,
		SingleProcessOOMKill: ptr.Deref(c.SingleProcessOOMKill, false),
		RecordResources:      !base.WithoutResize,
		LimitedSwap:          c.MemorySwap.SwapBehavior == config.LimitedSwap,
	}
	if host.CgroupV2 {
		options.Protection, options.ThrottlingFactor = protection(base), ptr.Deref(c.MemoryThrottlingFactor, 0)
	}
	if !base.QuotaOfExclusiveCPUs {
		options.ExclusiveCPUs = allocations
	}
	if c.CPUCFSQuotaPeriod != nil {
		options.CPUCFSQuotaPeriod = c.CPUCFSQuotaPeriod.Duration
	}
	return options, nil
}
