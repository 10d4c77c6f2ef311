package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/admit"
	"svc.dev/svc/svclet/allocation"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/devices"
	"svc.dev/svc/svclet/executor"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/logs"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/oom"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/resize"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
	"svc.dev/svc/svclet/userns"
	"svc.dev/svc/svclet/volume"
)

// pods are the manager of the node's pods, and those of its parts that the server
// shows.
type pods struct {
	*podmanager.Manager
	executor     *executor.Executor
	allocations  *allocation.Manager
	statuses     *status.Manager
	volumes      *volume.Manager
	cgroups      cgroups
	probeMetrics []prometheus.Collector
	oomKills     *oom.Counter
	updates      chan source.Update // of all sources
}

// newPods makes what runs pods, from what they refer to up to their manager.
func newPods(ctx context.Context, base common, conn connections, queue *podmanager.Queue, services *nodeServices, available resources, images *image.Manager, drivers *csi.Manager, held *devices.Manager, n *node.Node, o overrides) (*pods, tasks, error) {
	table, updates := podmanager.NewTable(), make(chan source.Update)
	objects, all := newObjects(base, conn, queue, o)
	created, localTasks := newLocalVolumes(base, conn)
	var manager *podmanager.Manager
	volumes, err := newVolumes(ctx, base, conn, objects, drivers, n, created, func(uid types.UID, volume, message string) {
		recordAbnormal(conn.events, manager.Find(uid), volume, message)
	})
	if err != nil {
		return nil, tasks{}, err
	}
	all.add(localTasks(volumes))
	prepared, err := newClaims(base, conn, queue)
	if err != nil {
		return nil, tasks{}, err
	}
	all.add(prepared.tasks)
	allocations, allocationTasks, err := newAllocations(base, conn, available, held, prepared, table)
	if err != nil {
		return nil, tasks{}, err
	}
	containers, err := containerOptions(base, allocations)
	if err != nil {
		return nil, tasks{}, err
	}
	cgroups, qos, cgroupTasks, err := newCgroups(base, conn, available, containers, o)
	if err != nil {
		return nil, tasks{}, err
	}
	logs, err := newLogs(base, conn, func() []logs.Container { return table.RunningContainers(containers) })
	if err != nil {
		return nil, tasks{}, err
	}
	admission, err := admissionOptions(base, available, containers.Host.AppArmor)
	if err != nil {
		return nil, tasks{}, err
	}
	probes := probe.New(probe.Options{Executor: conn.runtime, Recorder: conn.events, Result: queue.ProbeResult, Version: base.Version, Clock: base.Clock})
	base.metrics.Register(probes.HookMetrics()...)
	statuses := status.New(status.Options{Core: conn.core(), Written: base.metrics.StatusWritten, Clock: base.Clock})
	sources, err := newSources(base, conn, statuses, n)
	if err != nil {
		return nil, tasks{}, err
	}
	resizes, err := newResizes(base)
	if err != nil {
		return nil, tasks{}, err
	}
	users, err := newUsers(ctx, base, volumes)
	if err != nil {
		return nil, tasks{}, err
	}
	operations := executor.New(executor.Options{
		Runtime: conn.runtime, Images: images, Volumes: volumes, Logs: logs, Objects: objects, Cgroups: cgroups,
		Hooks: probes, Events: conn.events, Metrics: base.metrics, Clock: base.Clock, Node: n.Object, Containers: containers, Allocated: allocated(allocations, held, prepared.manager), Users: users, Claims: prepared.claims,
		Network:    base.connectionRules(),
		ClusterDNS: services.clusterDNS(base),
	})
	manager = podmanager.New(podmanager.Options{
		Queue: queue, Table: table, Executor: withTracing(operations, conn.tracer),
		Probes: probes, Statuses: statuses, Sources: sources, Node: n, QOS: qos,
		Events: conn.events, Metrics: base.metrics, Clock: base.Clock,
		Leftovers: podmanager.Leftovers{Volumes: volumes, Cgroups: cgroups, Logs: logs, Claims: prepared.claims},
		Health:    deviceHealth{held, prepared.manager},
		Admission: admission, Allocations: allocations, Resizes: resizes, Pressure: base.conditions.Get, MaxDeadContainers: int(base.DeadContainers), ShuttingDown: base.shutdown.IsShuttingDown, Machine: machineOptions(base),
	})
	if base.Containerd != nil && conn.clients != nil {
		all.parts = append(all.parts, func(ctx context.Context) { followPodCIDRs(ctx, base, conn.core()) })
	}
	all.add(cgroupTasks)
	all.add(pluginTasks(base, drivers, held, prepared, volumes, queue))
	all.add(allocationTasks)
	all.parts = append(all.parts, logs.Run, probes.Run, statuses.Run,
		func(ctx context.Context) { watchRuntime(ctx, conn.runtime, queue) },
		func(ctx context.Context) { sources.Run(ctx, updates) },
		func(ctx context.Context) { manager.Run(ctx, updates) },
	)
	return &pods{
		Manager: manager, executor: operations, allocations: allocations, statuses: statuses, volumes: volumes, cgroups: cgroups,
		probeMetrics: probes.ProbeMetrics(), oomKills: oom.NewCounter(table.Containers), updates: updates,
	}, all, nil
}

// newUsers makes what gives pods the users of their user namespaces; nil if they get none.
func newUsers(ctx context.Context, base common, volumes *volume.Manager) (*userns.Allocator, error) {
	if !base.UserNamespaces {
		return nil, nil
	}
	perPod := ptr.Deref(base.Configuration.UserNamespaces.IDsPerPod, userns.Block)
	all, err := userns.ReadRange(ctx, base.Configuration.MaxPods, perPod)
	if err != nil {
		return nil, err
	}
	pods, err := volumes.UIDs()
	if err != nil {
		return nil, err
	}
	return userns.New(userns.Options{Range: all, PerPod: perPod, PodDir: volumes.PodDir}, pods)
}

// newResizes makes how pods change in place.
func newResizes(base common) (podmanager.Resizes, error) {
	if base.WithoutResize {
		return podmanager.Resizes{}, nil
	}
	allocated, err := resize.Load(base.RootDir)
	return podmanager.Resizes{Allocations: allocated, Options: admit.ResizeOptions{StaticCPUs: base.Configuration.CPUManagerPolicy == config.CPUManagerStatic, StaticMemory: base.Configuration.MemoryManagerPolicy == config.MemoryManagerStatic}}, err
}

func machineOptions(base common) pod.Options {
	return pod.Options{
		MaxBackOff:     ptr.Deref(base.Configuration.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{}).Duration,
		DeadContainers: ptr.To(int(base.DeadContainersPerContainer)), DeadContainerTTL: base.MinimumContainerTTL,
		KeepVolumes:    base.KeepTerminatedPodVolumes,
		WithoutHostIPs: base.WithoutHostIPs, WithoutReadyToStart: base.WithoutReadyToStart, WithoutResize: base.WithoutResize,
		WithoutInitResize: base.WithoutInitResize, WithoutRestartAll: base.WithoutRestartAll,
	}
}

// watchRuntime adds changes of pods in the runtime to the queue.
func watchRuntime(ctx context.Context, client *runtime.Client, queue *podmanager.Queue) {
	if err := client.Watch(ctx, queue.Observe); err != nil && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "Failed to watch the container runtime")
	}
}

func admissionOptions(base common, available resources, appArmor bool) (admit.Options, error) {
	sysctls, err := admit.NewSysctls(base.Configuration.AllowedUnsafeSysctls, available.machine.KernelVersion)
	if err != nil {
		return admit.Options{}, fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	return admit.Options{
		Sysctls: sysctls, AppArmor: appArmor && !base.WithoutAppArmor, WithoutSidecars: base.WithoutSidecars, Claims: base.Claims, Features: features(base.Gates),
	}, nil
}

// newSources makes where pods come from.
func newSources(base common, conn connections, statuses *status.Manager, n *node.Node) (*source.Sources, error) {
	c := base.Configuration
	return source.New(source.Options{
		NodeName: base.name, Core: conn.core(), Clock: base.Clock,
		Path: c.StaticPodPath, FileCheckFrequency: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, URLHeader: http.Header(c.StaticPodURLHeader), HTTPCheckFrequency: c.HTTPCheckFrequency.Duration,
		Observed: statuses.Observed, Gone: statuses.Gone,
		NodeUID:  n.UID,
		Recorder: conn.events.Any(),
	})
}
