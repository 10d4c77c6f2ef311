package svclet

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/server/stats"
	"svc.dev/svc/svclet/source"
)

// makeStats makes what measures the node and its pods.
func (a *Agent) makeStats(context.Context) error {
	a.stats = stats.New(stats.Options{
		NodeName: a.name, RootDirectory: a.RootDir, PodLogsDirectory: a.Configuration.PodLogsDir,
		SystemContainers: a.systemCgroups(),
		Started:          a.clock.Now(), Clock: a.clock,
	}, a.runtime.CRI(), a.runtime, a.volumeStats)
	if ptr.Deref(a.Configuration.LocalStorageCapacityIsolation, true) {
		a.parts = append(a.parts, a.limitStorage)
	}
	return nil
}

// observe adds to what the agent's server serves what is measured and counted.
func (a *Agent) observe(parts *server.Parts) {
	a.metrics.Count(a.pods.count)
	a.metrics.Register(a.pods.probes.HookMetrics()...)
	a.metrics.Register(a.pods.images.Metrics()...)
	parts.Stats, parts.Requests = a.stats, a.metrics
	parts.Metrics = a.metrics.Gatherer()
	parts.Resource = registry(a.stats.Resource())
	parts.Cadvisor = registry(a.stats.Cadvisor())
	parts.Probes = registry(a.pods.probes.ProbeMetrics()...)
}

func registry(collectors ...prometheus.Collector) prometheus.Gatherer {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	return r
}

// systemCgroups are those of which the summary tells, by kubelet's names.
func (a *Agent) systemCgroups() map[string]string {
	all := map[string]string{"pods": a.Configuration.CgroupRoot + "/kubepods"}
	if cgroup := a.RuntimeCgroups; cgroup != "" {
		all["runtime"] = cgroup
	}
	if cgroup := a.Configuration.KubeletCgroups; cgroup != "" {
		all["kubelet"] = cgroup
	}
	if cgroup := a.Configuration.SystemCgroups; cgroup != "" {
		all["misc"] = cgroup
	}
	return all
}

// volumeStats are what the volumes of a pod take up, as the summary has it.
func (a *Agent) volumeStats(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error) {
	if a.Configuration.VolumeStatsAggPeriod.Duration <= 0 {
		return nil, nil // --volume-stats-agg-period: 0 turns it off
	}
	used, err := a.pods.volumes.Usage(ctx, uid)
	var all []statsapi.VolumeStats
	for _, u := range used {
		s := statsapi.VolumeStats{Name: u.Name, FsStats: statsapi.FsStats{
			Time:      metav1.NewTime(a.clock.Now()),
			UsedBytes: ptr.To(u.Used), AvailableBytes: ptr.To(u.Available), CapacityBytes: ptr.To(u.Capacity),
			InodesUsed: ptr.To(u.InodesUsed), InodesFree: ptr.To(u.InodesFree), Inodes: ptr.To(u.InodeCount),
		}}
		if u.Claim != "" {
			if p := a.pods.find(uid); p != nil {
				s.PVCRef = &statsapi.PVCReference{Name: u.Claim, Namespace: p.Namespace}
			}
		}
		all = append(all, s)
	}
	return all, err
}

// find is the pod of a UID, nil if there is none.
func (p *pods) find(uid types.UID) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.workers[uid]; m != nil {
		return m.wanted()
	}
	return nil
}

// count counts pods and containers.
func (p *pods) count() metrics.Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := metrics.Counts{Containers: map[string]int{}}
	for _, m := range p.workers {
		seen := m.seen()
		for _, one := range seen.Containers {
			c.Containers[string(one.State)]++
		}
		for _, sandbox := range seen.Sandboxes {
			if sandbox.Ready {
				c.RunningPods++
				break
			}
		}
		if m.removed {
			continue
		}
		static := source.IsStatic(m.wanted())
		active := !m.hasEnded()
		c.Desired += one(!static)
		c.DesiredStatic += one(static)
		c.Active += one(!static && active)
		c.ActiveStatic += one(static && active)
		c.Mirrors += one(static && p.mirrored)
	}
	return c
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// started notes when the containers of a pod have all started for the first
// time.
func (p *pods) started(w *worker, wanted *corev1.Pod, out pod.Output) {
	if w.counted || out.Status.Phase != corev1.PodRunning {
		return
	}
	for i := range out.Status.ContainerStatuses {
		if s := &out.Status.ContainerStatuses[i]; s.State.Running == nil {
			return
		}
	}
	w.counted = true
	if w.adopted {
		return
	}
	now := p.clock.Now()
	existed := now.Sub(w.began)
	if !wanted.CreationTimestamp.IsZero() {
		existed = now.Sub(wanted.CreationTimestamp.Time)
	}
	p.metrics.PodRunning(now.Sub(w.began), existed, time.Duration(w.pulling.Load()))
}
