package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/container"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/logs"
	store "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
	"svc.dev/svc/svclet/volume"
)

// makePods makes what runs pods, from what they refer to up to their manager.
func (a *Agent) makePods(o overrides) error {
	c := a.Configuration
	objects := a.makeObjects(o)
	volumes, err := a.makeVolumes(objects)
	if err != nil {
		return err
	}
	cgroups, qos, err := a.makeCgroups(o)
	if err != nil {
		return err
	}
	containers, err := a.containerOptions()
	if err != nil {
		return err
	}
	table := podmanager.NewTable()
	logs, err := a.makeLogs(func() []logs.Container { return table.RunningContainers(containers) })
	if err != nil {
		return err
	}
	sysctls, err := admit.NewSysctls(c.AllowedUnsafeSysctls, a.machine.KernelVersion)
	if err != nil {
		return fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	probes := probe.New(probe.Options{Executor: a.runtime, Recorder: a.events, Result: a.queue.ProbeResult, Version: a.Version, Clock: a.Clock})
	statuses := status.New(status.Options{Core: a.core(), Written: a.metrics.StatusWritten, Clock: a.Clock})
	sources, err := a.makeSources(statuses)
	if err != nil {
		return err
	}
	a.executor = executor.New(executor.Options{
		Runtime: a.runtime, Images: a.images, Volumes: volumes, Logs: logs, Objects: objects, Cgroups: cgroups,
		Hooks: probes, Events: a.events, Metrics: a.metrics, Clock: a.Clock, Node: a.node.Object, Containers: containers,
	})
	a.pods = podmanager.New(podmanager.Options{
		Queue: a.queue, Table: table, Executor: a.executor,
		Probes: probes, Statuses: statuses, Sources: sources, Node: a.node, QOS: qos,
		Events: a.events, Metrics: a.metrics, Clock: a.Clock,
		Leftovers:  podmanager.Leftovers{Volumes: volumes, Cgroups: cgroups, Logs: logs},
		Admission:  admit.Options{Sysctls: sysctls, AppArmor: containers.Host.AppArmor && !a.WithoutAppArmor},
		MaxBackOff: ptr.Deref(c.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{}).Duration,
	})
	a.metrics.Register(probes.HookMetrics()...)
	a.probeMetrics, a.volumes, a.statuses = probes.ProbeMetrics(), volumes, statuses
	if a.Containerd != nil && a.clients != nil {
		a.parts = append(a.parts, a.followPodCIDRs)
	}
	a.parts = append(a.parts, a.node.Run, probes.Run, statuses.Run, a.watchRuntime,
		func(ctx context.Context) { sources.Run(ctx, a.updates) },
		func(ctx context.Context) { a.pods.Run(ctx, a.updates) },
	)
	return nil
}

// makeObjects makes the store of API objects that pods refer to. In standalone mode
// there are none.
func (a *Agent) makeObjects(o overrides) objects {
	var all objects = noObjects{}
	if a.clients != nil {
		store := store.New(store.Options{Client: a.clients.Client, Changed: a.queue.ObjectsChanged, Clock: a.Clock})
		a.parts = append(a.parts, func(ctx context.Context) { <-ctx.Done(); store.Close() })
		all = apiObjects{store, a.clients}
	}
	if o.objects != nil {
		all = o.objects(all)
	}
	return all
}

func (a *Agent) makeVolumes(objects objects) (*volume.Manager, error) {
	volumes, err := volume.New(volume.Options{
		RootDir: a.RootDir, Objects: objects, UsagePeriod: a.Configuration.VolumeStatsAggPeriod.Duration, Clock: a.Clock,
		Allocatable: func() corev1.ResourceList { return a.node.Object().Status.Allocatable },
	})
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	if err := volume.ShareMounts(a.RootDir); err != nil {
		klog.FromContext(a.ctx).Error(err, "Failed to share the mounts of the root directory, mounts will not propagate between containers", "dir", a.RootDir)
	}
	return volumes, nil
}

func (a *Agent) makeLogs(running func() []logs.Container) (*logs.Manager, error) {
	c := a.Configuration
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return nil, fmt.Errorf("containerLogMaxSize: %w", err)
	}
	manager, err := logs.New(logs.Options{
		Runtime: a.runtime, Running: running, Dir: c.PodLogsDir, LinkDir: cmp.Or(a.LogLinksDir, "/var/log/containers"), Clock: a.Clock,
		MaxSize: size.Value(), MaxFiles: int(ptr.Deref(c.ContainerLogMaxFiles, 0)), Workers: int(ptr.Deref(c.ContainerLogMaxWorkers, 0)),
		Interval: ptr.Deref(c.ContainerLogMonitorInterval, config.Default().FileCheckFrequency).Duration,
	})
	if err != nil {
		return nil, err
	}
	a.parts = append(a.parts, manager.Run)
	return manager, nil
}

// containerOptions returns the node's part of the configurations of containers, but
// for what changes with the Node.
func (a *Agent) containerOptions() (container.Options, error) {
	host, err := container.ReadHost("/")
	if err != nil {
		return container.Options{}, err
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
	return options, nil
}

// makeSources makes where pods come from.
func (a *Agent) makeSources(statuses *status.Manager) (*source.Sources, error) {
	c := a.Configuration
	return source.New(source.Options{
		NodeName: a.name, Core: a.core(), Clock: a.Clock,
		Path: c.StaticPodPath, FileCheckFrequency: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, URLHeader: http.Header(c.StaticPodURLHeader), HTTPCheckFrequency: c.HTTPCheckFrequency.Duration,
		Observed: statuses.Observed, Gone: statuses.Gone,
		NodeUID:  a.node.UID,
		Recorder: a.events.Any(),
	})
}
