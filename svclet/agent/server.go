package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/records"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/server/stats"
	"svc.dev/svc/svclet/volume"
)

// newServer makes what measures the node and its pods, what evicts pods by that, and
// the agent's server: nil with enableServer: false.
func newServer(ctx context.Context, base common, conn connections, images *image.Manager, pulls *records.Records, p *pods, n *node.Node) (*server.Server, tasks, error) {
	c := base.Configuration
	usage := volumeUsage{volumes: p.volumes, pods: p.Manager, clock: base.Clock}
	read := usage.read
	if c.VolumeStatsAggPeriod.Duration <= 0 { // --volume-stats-agg-period=0 turns it off.
		read = noVolumeUsage
	}
	measured := stats.New(stats.Options{
		NodeName: base.name, RootDirectory: base.RootDir, PodLogsDirectory: c.PodLogsDir,
		SystemContainers: systemCgroups(base.Config),
		Started:          base.Clock.Now(), Clock: base.Clock,
	}, conn.runtime.CRI(), conn.runtime, read)
	base.metrics.Register(measured.VolumeMetrics(), volumeCounts{p.volumes})
	if base.VolumeHealth {
		base.metrics.Register(volumeHealth{p})
	}
	collector := newCollector(base, conn, images, pulls, measured)
	all := tasks{parts: []func(context.Context){newEviction(base, conn, p, n, measured, collector).Run, collector.Run}}
	if conn.listeners == nil {
		return nil, all, nil
	}
	base.metrics.Count(func() metrics.Counts { return p.Count(conn.clients != nil) })
	shown := config.Shown(c)
	parts := server.Parts{
		Pods: servedPods{p.Manager, conn.runtime}, Runtime: conn.runtime, SyncLoop: p.Manager,
		Configz: func() any { return shown }, Clock: base.Clock,
		Stats: measured, SetVerbosity: base.SetVerbosity, Journal: server.Journalctl, Requests: base.metrics,
		Metrics: base.metrics.Gatherer(), Resource: registry(measured.Resource()), Cadvisor: registry(measured.Cadvisor(), p.oomKills),
		Probes: registry(p.probeMetrics...), Tracer: conn.tracer,
	}
	if conn.clients != nil {
		parts.Reviews = conn.clients.Client
	}
	o := serverOptions(base)
	if base.Checkpoint {
		o.CheckpointDirectory = filepath.Join(base.RootDir, "checkpoints")
		if err := os.MkdirAll(o.CheckpointDirectory, 0o700); err != nil {
			return nil, tasks{}, fmt.Errorf("--root-dir: %w", err)
		}
	}
	renewal, err := useCertificates(ctx, base, &o, n)
	if err != nil {
		return nil, tasks{}, err
	}
	all.add(renewal)
	s, err := server.New(o, parts)
	return s, all, err
}

func serverOptions(base common) server.Options {
	c := base.Configuration
	return server.Options{
		NodeName: base.name, Address: c.Address, Port: c.Port, ReadOnlyPort: c.ReadOnlyPort,
		HealthzBindAddress: c.HealthzBindAddress, HealthzPort: ptr.Deref(c.HealthzPort, 0),
		TLSCertFile: c.TLSCertFile, TLSPrivateKeyFile: c.TLSPrivateKeyFile, CertDirectory: base.CertDir,
		TLSMinVersion: c.TLSMinVersion, TLSCipherSuites: c.TLSCipherSuites, TLSCurvePreferences: c.TLSCurvePreferences,
		ClientCAFile:  c.Authentication.X509.ClientCAFile,
		AnonymousAuth: ptr.Deref(c.Authentication.Anonymous.Enabled, true),
		TokenWebhook:  ptr.Deref(c.Authentication.Webhook.Enabled, false), TokenWebhookCacheTTL: c.Authentication.Webhook.CacheTTL.Duration,
		AuthorizationMode: string(c.Authorization.Mode),
		AuthorizedTTL:     c.Authorization.Webhook.CacheAuthorizedTTL.Duration, UnauthorizedTTL: c.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		EnableDebuggingHandlers: ptr.Deref(c.EnableDebuggingHandlers, true), EnableSystemLogHandler: ptr.Deref(c.EnableSystemLogHandler, true),
		EnableProfilingHandler: ptr.Deref(c.EnableProfilingHandler, true), EnableDebugFlagsHandler: ptr.Deref(c.EnableDebugFlagsHandler, true),
		EnableSystemLogQuery:           ptr.Deref(c.EnableSystemLogQuery, false),
		StreamingConnectionIdleTimeout: max(c.StreamingConnectionIdleTimeout.Duration, 0),
		SyncLoopTimeout:                max(2*c.SyncFrequency.Duration, 5*time.Minute),
	}
}

func registry(collectors ...prometheus.Collector) prometheus.Gatherer {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	return r
}

// systemCgroups returns the cgroups that the summary shows, by kubelet's names.
func systemCgroups(c Config) map[string]string {
	all := map[string]string{"pods": podsCgroup(c.Configuration)}
	if cgroup := c.RuntimeCgroups; cgroup != "" {
		all["runtime"] = cgroup
	}
	if cgroup := c.Configuration.KubeletCgroups; cgroup != "" {
		all["kubelet"] = cgroup
	}
	if cgroup := c.Configuration.SystemCgroups; cgroup != "" {
		all["misc"] = cgroup
	}
	return all
}

// volumeUsage is the usage of volumes, as the summary shows it.
type volumeUsage struct {
	volumes *volume.Manager
	pods    *podmanager.Manager
	clock   clock.PassiveClock
}

func noVolumeUsage(context.Context, types.UID) ([]statsapi.VolumeStats, error) { return nil, nil }

// read returns the usage of a pod's volumes.
func (v volumeUsage) read(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error) {
	used, err := v.volumes.Usage(ctx, uid)
	var all []statsapi.VolumeStats
	for _, u := range used {
		s := statsapi.VolumeStats{Name: u.Name, FsStats: statsapi.FsStats{
			Time:      metav1.NewTime(v.clock.Now()),
			UsedBytes: ptr.To(u.Used), AvailableBytes: ptr.To(u.Available), CapacityBytes: ptr.To(u.Capacity),
			InodesUsed: ptr.To(u.InodesUsed), InodesFree: ptr.To(u.InodesFree), Inodes: ptr.To(u.InodeCount),
		}}
		if u.Claim != "" {
			if p := v.pods.Find(uid); p != nil {
				s.PVCRef = &statsapi.PVCReference{Name: u.Claim, Namespace: p.Namespace}
			}
		}
		all = append(all, s)
	}
	return all, err
}

// servedPods are the pods as the agent's server shows them.
type servedPods struct {
	*podmanager.Manager
	runtime *runtime.Client
}

// Running implements server.Pods.
func (s servedPods) Running(ctx context.Context) ([]*corev1.Pod, error) {
	held, err := s.runtime.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Pod
	for _, p := range held {
		if shown := server.RunningPod(p.UID, p.Namespace, p.Name, p.Observed); len(shown.Spec.Containers) > 0 {
			all = append(all, shown)
		}
	}
	return all, nil
}
