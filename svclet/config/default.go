package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/podnetwork/plan"
)

// Configuration is the SvcletConfiguration. Its schema is that of
// k8s.io/kubelet/config/v1beta1.
type Configuration = kubeletconfig.KubeletConfiguration

// API groups and kinds of files. Kubelet's own are accepted too.
const (
	Kind       = "SvcletConfiguration"
	APIVersion = "svclet.config.k8s.io/v1beta1"

	kubeletKind       = "KubeletConfiguration"
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
)

// Release is the kubelet release whose behavior svclet has and, unless --version
// sets another, reports.
const Release = "v1.36.0"

// CloudExternal is the --cloud-provider of nodes that a cloud controller manager
// completes.
const CloudExternal = "external"

// Flags are the settings without a field in files. A tag is the flag's name.
type Flags struct {
	// Svcconfig is the connection file for the API server; without it the agent runs
	// in standalone mode (document 3 section 1).
	Svcconfig string `flag:"svcconfig"`
	// BootstrapSvcconfig is the connection file with which the first client certificate
	// is requested.
	BootstrapSvcconfig string `flag:"bootstrap-svcconfig"`
	// Config is the configuration file, ConfigDir the directory of drop-ins.
	Config    string `flag:"config"`
	ConfigDir string `flag:"config-dir"`
	// HostnameOverride is the node's name; by default the host name.
	HostnameOverride string `flag:"hostname-override"`
	// CloudProvider is empty or [CloudExternal].
	CloudProvider string `flag:"cloud-provider"`
	// NodeIP is an address of the node, or one of each family.
	NodeIP     string            `flag:"node-ip"`
	NodeLabels map[string]string `flag:"node-labels"`
	// CertDir is the directory of the agent's own certificate, RootDir that of its
	// other files.
	CertDir string `flag:"cert-dir"`
	RootDir string `flag:"root-dir"`
	// AllocatableIgnoresEviction makes what eviction thresholds keep free allocatable.
	AllocatableIgnoresEviction bool `flag:"experimental-allocatable-ignore-eviction"`
	// KeepTerminatedPodVolumes keeps the volumes of ended pods until these are deleted.
	KeepTerminatedPodVolumes bool `flag:"keep-terminated-pod-volumes"`
	// DeadContainers is how many terminated containers of the node are kept,
	// DeadContainersPerContainer how many of each container, and MinimumContainerTTL how
	// long in any case.
	DeadContainers             int32         `flag:"maximum-dead-containers"`
	DeadContainersPerContainer int32         `flag:"maximum-dead-containers-per-container"`
	MinimumContainerTTL        time.Duration `flag:"minimum-container-ttl-duration"`
	// RegisterSchedulable false registers the node as unschedulable.
	RegisterSchedulable bool `flag:"register-schedulable"`
	// ServiceProxy routes the addresses of services to their endpoints, as kube-proxy
	// does.
	ServiceProxy bool `flag:"service-proxy"`
	// NetworkPolicy filters the connections of pods as network policies require.
	NetworkPolicy bool `flag:"network-policy"`
	// PodNetwork is how the pods of this node and those of others reach each other: one of
	// plan.Modes.
	PodNetwork string `flag:"pod-network"`
	// DNS answers questions about names of the cluster, at the service kube-dns while
	// that has no endpoints, and makes pods ask there.
	DNS bool `flag:"dns"`
	// ImageCredentialProviderConfig configures credential provider plugins, whose
	// programs are in ImageCredentialProviderBinDir.
	ImageCredentialProviderConfig string `flag:"image-credential-provider-config"`
	ImageCredentialProviderBinDir string `flag:"image-credential-provider-bin-dir"`
	// PodInfraContainerImage is the image of sandboxes, which is not collected.
	PodInfraContainerImage string `flag:"pod-infra-container-image"`
	// RuntimeCgroups is the container runtime's own cgroup, for statistics.
	RuntimeCgroups string `flag:"runtime-cgroups"`
	// LockFile is locked while the agent runs. With ExitOnLockContention the agent
	// exits when another process opens it.
	LockFile             string `flag:"lock-file"`
	ExitOnLockContention bool   `flag:"exit-on-lock-contention"`
	// Version is "false", "true", "raw", or the release to report ("v1.36.0").
	Version string `flag:"version"`
	Help    bool   `flag:"help"`
}

// DefaultFlags returns the defaults of flags (document 3 sections 5 and 9).
func DefaultFlags() Flags {
	return Flags{CertDir: "/var/lib/svclet/pki", RootDir: "/var/lib/svclet", PodInfraContainerImage: "{registry}/pause:3.9", RegisterSchedulable: true, PodNetwork: plan.None, DeadContainers: -1, DeadContainersPerContainer: 1, Version: "false"}
}

// Default returns the default configuration: that of document 3, and of kubelet
// 1.36 where the document has none, with one exception: failCgroupV1 is false,
// because the document has no hosts on which the agent does not start.
func Default() *Configuration {
	c := &Configuration{TypeMeta: metav1.TypeMeta{Kind: Kind, APIVersion: APIVersion}}
	defaultServer(c)
	defaultNode(c)
	defaultPods(c)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
	return c
}

func defaultServer(c *Configuration) {
	c.EnableServer = ptr.To(true)
	c.Address = "0.0.0.0"
	c.Port = 10250
	c.ReadOnlyPort = 10255
	c.HealthzPort = ptr.To[int32](10248)
	c.HealthzBindAddress = "127.0.0.1"
	c.Authentication.Anonymous.Enabled = ptr.To(true)
	c.Authentication.Webhook.Enabled = ptr.To(false)
	c.Authentication.Webhook.CacheTTL = seconds(120)
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	c.Authorization.Webhook.CacheAuthorizedTTL = seconds(300)
	c.Authorization.Webhook.CacheUnauthorizedTTL = seconds(30)
	c.EnableDebuggingHandlers = ptr.To(true)
	c.EnableSystemLogHandler = ptr.To(true)
	c.EnableSystemLogQuery = ptr.To(false)
	c.EnableProfilingHandler = ptr.To(true)
	c.EnableDebugFlagsHandler = ptr.To(true)
	c.StreamingConnectionIdleTimeout = seconds(4 * 60 * 60)
}

func defaultNode(c *Configuration) {
	c.RegisterNode = ptr.To(true)
	c.NodeStatusUpdateFrequency = seconds(10)
	c.NodeStatusReportFrequency = seconds(300)
	c.NodeLeaseDurationSeconds = 40
	c.NodeStatusMaxImages = ptr.To[int32](50)
	c.EnableControllerAttachDetach = ptr.To(true)
	c.ContentType = "application/vnd.svc.protobuf"
	c.KubeAPIQPS = ptr.To[int32](50)
	c.KubeAPIBurst = 100
	c.EventRecordQPS = ptr.To[int32](50)
	c.EventBurst = 100
	c.OOMScoreAdj = ptr.To[int32](-999)
	c.MaxOpenFiles = 1000000
	c.FailSwapOn = ptr.To(true)
	c.FailCgroupV1 = ptr.To(false)
	c.EnforceNodeAllocatable = []string{"pods"}
	c.EvictionHard = defaultEvictionHard()
	c.EvictionPressureTransitionPeriod = seconds(300)
	c.MergeDefaultEvictionSettings = ptr.To(false)
	c.LocalStorageCapacityIsolation = ptr.To(true)
	c.HairpinMode = kubeletconfig.PromiscuousBridge
	c.MakeIPTablesUtilChains = ptr.To(true)
}

func defaultPods(c *Configuration) {
	c.SyncFrequency = seconds(60)
	c.FileCheckFrequency = seconds(20)
	c.HTTPCheckFrequency = seconds(20)
	c.RuntimeRequestTimeout = seconds(120)
	c.RegistryPullQPS = ptr.To[int32](5)
	c.RegistryBurst = 10
	c.SerializeImagePulls = ptr.To(true)
	c.ImageGCHighThresholdPercent = ptr.To[int32](85)
	c.ImageGCLowThresholdPercent = ptr.To[int32](80)
	c.ImageMinimumGCAge = seconds(120)
	c.ImagePullCredentialsVerificationPolicy = kubeletconfig.NeverVerifyPreloadedImages
	c.MaxPods = 110
	c.UserNamespaces = &kubeletconfig.UserNamespaces{IDsPerPod: ptr.To[int64](userBlock)}
	c.MemoryThrottlingFactor = ptr.To(defaultThrottling)
	c.PodPidsLimit = ptr.To[int64](-1)
	c.CgroupsPerQOS = ptr.To(true)
	c.CgroupDriver = "cgroupfs"
	c.CPUManagerPolicy = "none"
	c.MemoryManagerPolicy = kubeletconfig.NoneMemoryManagerPolicy
	c.CPUManagerReconcilePeriod = seconds(10)
	c.TopologyManagerPolicy = "none"
	c.TopologyManagerScope = "container"
	c.CPUCFSQuota = ptr.To(true)
	c.CPUCFSQuotaPeriod = &metav1.Duration{Duration: defaultCFSQuotaPeriod}
	c.SeccompDefault = ptr.To(false)
	c.ResolverConfig = ptr.To("/etc/resolv.conf")
	c.VolumeStatsAggPeriod = seconds(60)
	c.VolumePluginDir = "/usr/libexec/svc/svclet-plugins/volume/exec/"
	c.PodLogsDir = "/var/log/pods"
	c.ContainerLogMaxSize = "10Mi"
	c.ContainerLogMaxFiles = ptr.To[int32](5)
	c.ContainerLogMaxWorkers = ptr.To[int32](1)
	c.ContainerLogMonitorInterval = ptr.To(seconds(10))
	c.ConfigMapAndSecretChangeDetectionStrategy = kubeletconfig.WatchChangeDetectionStrategy
	c.CrashLoopBackOff.MaxContainerRestartPeriod = ptr.To(seconds(300))
}

// defaultThrottling is the memoryThrottlingFactor of release 1.28.
const defaultThrottling = 0.9

const defaultCFSQuotaPeriod = 100 * time.Millisecond

func seconds(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Second}
}
