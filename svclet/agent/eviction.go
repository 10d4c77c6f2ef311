package agent

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/eviction"
	"svc.dev/svc/svclet/eviction/threshold"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/collect"
	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/svclet/image/records"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/server/stats"
)

// readThresholds reads the eviction thresholds of the configuration.
func readThresholds(c *config.Configuration) ([]threshold.Threshold, error) {
	all, err := threshold.Parse(threshold.Settings{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, Reclaim: c.EvictionMinimumReclaim,
		Pods: slices.Contains(c.EnforceNodeAllocatable, cgroup.EnforcePods),
	})
	if err != nil {
		return nil, fmt.Errorf("--eviction-hard, --eviction-soft: %w", err)
	}
	return all, nil
}

// newEviction makes what evicts pods, by the node's thresholds and the pods' own limits.
func newEviction(base common, conn connections, p *pods, n *node.Node, measured *stats.Provider, images *collect.Collector) *eviction.Manager {
	c := base.Configuration
	o := eviction.Options{
		Pods: p.Manager, Stats: measured, Clock: base.Clock, Thresholds: base.thresholds,
		TransitionPeriod: c.EvictionPressureTransitionPeriod.Duration, MaxPodGrace: int64(c.EvictionMaxPodGracePeriod),
		StorageLimits: ptr.Deref(c.LocalStorageCapacityIsolation, true),
		Conditions:    base.conditions, Changed: n.Changed,
		Event: conn.events.Node, Measured: base.metrics.EvictionStats,
		RemoveDead: p.Manager.RemoveDead, RemoveImages: images.RemoveUnused,
	}
	if *c.CgroupsPerQOS { // otherwise pods have no cgroups of their own
		o.Cgroup = func(pod *corev1.Pod) (*statsapi.PodStats, error) {
			path, err := p.cgroups.Parent(pod)
			if err != nil {
				return nil, err
			}
			return measured.PodCgroup(path)
		}
	}
	if c.KernelMemcgNotification && !cgroup.Unified() {
		o.Notify = func(signal threshold.Signal, bytes int64, crossed func()) (func(), error) {
			of := "/"
			if signal == threshold.AllocatableMemory {
				of = podsCgroup(c)
			}
			return cgroup.WatchMemory(of, bytes, crossed)
		}
	}
	return eviction.NewManager(o)
}

// newCollector makes what removes unused images.
func newCollector(base common, conn connections, images *image.Manager, pulls *records.Records, measured *stats.Provider) *collect.Collector {
	c := base.Configuration
	return collect.New(collect.Options{
		Runtime: conn.runtime, Containers: conn.runtime.CRI(), Clock: base.Clock, Event: conn.events.Node, Removed: images.Forget,
		Collected:  base.metrics.ImageCollected,
		FileSystem: measured.ImageFileSystem,
		Listed: func(ids []string, at time.Time) {
			if err := pulls.Prune(ids, at); err != nil {
				klog.Background().Error(err, "Failed to remove the records of images that are gone")
			}
		},
		High: int(ptr.Deref(c.ImageGCHighThresholdPercent, 100)), Low: int(ptr.Deref(c.ImageGCLowThresholdPercent, 100)),
		Keep:       []string{pause.Name, base.PodInfraContainerImage},
		MinimumAge: c.ImageMinimumGCAge.Duration, MaximumAge: c.ImageMaximumGCAge.Duration,
	})
}

// pressure returns which resources run out, for the Node's conditions.
func pressure(c *eviction.Conditions) node.Pressure {
	return node.Pressure{Memory: c.Has(corev1.NodeMemoryPressure), Disk: c.Has(corev1.NodeDiskPressure), PID: c.Has(corev1.NodePIDPressure)}
}

// reserved returns what of the node's capacity pods cannot use: the reservations, and
// what hard eviction thresholds keep free.
func reserved(base common, available resources) corev1.ResourceList {
	total := available.reserved.Total()
	if base.AllocatableIgnoresEviction {
		return total
	}
	capacity := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(available.machine.Memory, resource.BinarySI)}
	if available.machine.Storage > 0 {
		capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(available.machine.Storage, resource.BinarySI)
	}
	for name, amount := range threshold.Reserved(base.thresholds, capacity) {
		sum := total[name]
		sum.Add(amount)
		total[name] = sum
	}
	return total
}
