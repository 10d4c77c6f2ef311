package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/eviction"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
	"svc.dev/svc/svclet/server/stats"
)

// makeServer makes what measures the node and its pods, what evicts pods by that, and
// the agent's server.
func (a *Agent) makeServer(overrides) error {
	c := a.Configuration
	measured := stats.New(stats.Options{
		NodeName: a.name, RootDirectory: a.RootDir, PodLogsDirectory: c.PodLogsDir,
		SystemContainers: a.systemCgroups(),
		Started:          a.Clock.Now(), Clock: a.Clock,
	}, a.runtime.CRI(), a.runtime, a.volumeStats)
	if ptr.Deref(c.LocalStorageCapacityIsolation, true) {
		a.parts = append(a.parts, eviction.NewManager(a.pods, measured, a.Clock).Run)
	}
	if a.listeners == nil {
		return nil
	}
	a.metrics.Count(func() metrics.Counts { return a.pods.Count(a.clients != nil) })
	a.metrics.Register(a.images.Metrics()...)
	shown := config.Shown(c)
	parts := server.Parts{
		Pods: servedPods{a.pods, a.runtime}, Runtime: a.runtime, SyncLoop: a.pods,
		Configz: func() any { return shown }, Clock: a.Clock,
		Stats: measured, Requests: a.metrics,
		Metrics: a.metrics.Gatherer(), Resource: registry(measured.Resource()), Cadvisor: registry(measured.Cadvisor()),
		Probes: registry(a.probeMetrics...),
	}
	if a.clients != nil {
		parts.Reviews = a.clients.Client
	}
	var err error
	a.server, err = server.New(serverOptions(a.name, a.Config), parts)
	return err
}

func serverOptions(name string, a Config) server.Options {
	c := a.Configuration
	return server.Options{
		NodeName: name, Address: c.Address, Port: c.Port, ReadOnlyPort: c.ReadOnlyPort,
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
}

func registry(collectors ...prometheus.Collector) prometheus.Gatherer {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectors...)
	return r
}

// systemCgroups returns the cgroups that the summary shows, by kubelet's names.
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

// volumeStats returns the usage of a pod's volumes, as the summary shows it.
func (a *Agent) volumeStats(ctx context.Context, uid types.UID) ([]statsapi.VolumeStats, error) {
	if a.Configuration.VolumeStatsAggPeriod.Duration <= 0 {
		return nil, nil // --volume-stats-agg-period=0 turns it off.
	}
	used, err := a.volumes.Usage(ctx, uid)
	var all []statsapi.VolumeStats
	for _, u := range used {
		s := statsapi.VolumeStats{Name: u.Name, FsStats: statsapi.FsStats{
			Time:      metav1.NewTime(a.Clock.Now()),
			UsedBytes: ptr.To(u.Used), AvailableBytes: ptr.To(u.Available), CapacityBytes: ptr.To(u.Capacity),
			InodesUsed: ptr.To(u.InodesUsed), InodesFree: ptr.To(u.InodesFree), Inodes: ptr.To(u.InodeCount),
		}}
		if u.Claim != "" {
			if p := a.pods.Find(uid); p != nil {
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
