package config

import "k8s.io/component-base/featuregate"

// The gates with an effect in svclet. All others are accepted, so that the
// components of a cluster can have the same gates, and have no effect.
const (
	gatePodResourcesGet = "SvcletPodResourcesGet"
	gateClaims          = "DynamicResourceAllocation"
	gateClaimResources  = "SvcletPodResourcesDynamicResources"
	gateCDIDevices      = "DevicePluginCDIDevices"
	gateAppArmor        = "AppArmor"
	gateShutdown        = "GracefulNodeShutdown"
	gateShutdownOrder   = "GracefulNodeShutdownBasedOnPodPriority"
	gateCPUAlpha        = "CPUManagerPolicyAlphaOptions"
	gateCPUBeta         = "CPUManagerPolicyBetaOptions"
	gateCPUOptions      = "CPUManagerPolicyOptions"
	gateTopologyBeta    = "TopologyManagerPolicyBetaOptions"
	gateTopologyOptions = "TopologyManagerPolicyOptions"
	gateCFSQuotaPeriod  = "CustomCPUCFSQuotaPeriod"
	gateLoggingAlpha    = "LoggingAlphaOptions"
	gateLoggingBeta     = "LoggingBetaOptions"
	gateResize          = "InPlacePodVerticalScaling"
	gateMemoryQoS       = "MemoryQoS"
	gateNodeSwap        = "NodeSwap"
	gateHostIPs         = "PodHostIPs"
	gateQOSReserved     = "QOSReserved"
	gateReadyToStart    = "PodReadyToStartContainersCondition"
	gateSidecars        = "SidecarContainers"
	gateRotateServing   = "RotateSvcletServerCertificate"
	gateCheckpoint      = "ContainerCheckpoint"
	gateLogQuery        = "NodeLogQuery"
	gateMemoryManager   = "MemoryManager"
	gateUserNamespaces  = "UserNamespacesStatelessPodsSupport"
	gateWatchList       = "WatchList"
	gateTracing         = "SvcletTracing"
	gateCgroupDriver    = "SvcletCgroupDriverFromCRI"
	gateVolumeHealth    = "CSIVolumeHealth"
	gatePortworx        = "CSIMigrationPortworx"
	gateQuotas          = "LocalStorageCapacityIsolationFSQuotaMonitoring"
)

// gateEffects returns the effect of each gate.
func gateEffects() map[string]string {
	return map[string]string{
		gatePodResourcesGet: "The pod resources API has the method Get.",
		gateClaims:          "Drivers prepare the resource claims of pods; without it pods with resource claims are rejected.",
		gateClaimResources:  "The pod resources API shows the devices of resource claims.",
		gateCDIDevices:      "Containers get the CDI devices that device plugins name.",
		gateAppArmor:        "Pods that ask for an AppArmor profile are taken, if the host has AppArmor.",
		gateCPUAlpha:        "`cpuManagerPolicyOptions` may have distribute-cpus-across-numa and align-by-socket.",
		gateCPUBeta:         "`cpuManagerPolicyOptions` may have full-pcpus-only.",
		gateCPUOptions:      "`cpuManagerPolicyOptions` may be set.",
		gateTopologyBeta:    "`topologyManagerPolicyOptions` may have prefer-closest-numa-nodes.",
		gateTopologyOptions: "`topologyManagerPolicyOptions` may be set.",
		gateShutdown:        "`shutdownGracePeriod` may be set.",
		gateShutdownOrder:   "`shutdownGracePeriodByPodPriority` may be set.",
		gateCFSQuotaPeriod:  "`cpuCFSQuotaPeriod` may be other than 100ms.",
		gateLoggingAlpha:    "The options of the formats of logs may be set.",
		gateLoggingBeta:     "The format of logs may be json.",
		gateCheckpoint:      "`POST /checkpoint/NAMESPACE/POD/CONTAINER` of the agent's server writes the state of a container to a file, if the container runtime can.",
		gateLogQuery:        "`enableSystemLogQuery` may be true.",
		gateMemoryManager:   "`memoryManagerPolicy` may be Static.",
		gateUserNamespaces:  "Pods with `hostUsers: false` get a user namespace of their own, if the container runtime can; without it they do not start.",
		gateTracing:         "`tracing` may be set.",
		gateCgroupDriver:    "The container runtime says which cgroup driver it uses; `cgroupDriver` is that of runtimes that do not.",
		gateVolumeHealth:    "CSI drivers are asked whether volumes are healthy: events of pods with one that is not, and the metric kubelet_volume_stats_health_status_abnormal.",
		gatePortworx:        "Volumes of type portworxVolume are mounted by the CSI driver pxd.portworx.com.",
		gateQuotas:          "Volumes of type emptyDir are measured by project quotas, where their file system is ext4 or XFS that is mounted with prjquota, and Linux is 5.14 or later; else their files are counted.",
		gateWatchList:       "Lists are asked for as streams of the API server.",
		gateResize:          "The CPU and memory of running pods change in place, by `kubectl patch --subresource=resize`.",
		gateMemoryQoS:       "On cgroup v2, the memory that pods request is protected from reclaim, and containers are throttled before they reach their limits.",
		gateNodeSwap:        "`memorySwap.swapBehavior` may be LimitedSwap.",
		gateHostIPs:         "`status.hostIPs` of pods has all addresses of the node.",
		gateReadyToStart:    "Pods have the condition PodReadyToStartContainers.",
		gateSidecars:        "Init containers may have `restartPolicy: Always`; without it such pods are rejected.",
		gateQOSReserved:     "`qosReserved` may be set.",
		gateRotateServing:   "`serverTLSBootstrap` may be true.",
	}
}

// Gates are the feature gates with an effect.
type Gates struct {
	// WithoutAppArmor refuses pods with AppArmor profiles even if the host supports it
	// (AppArmor=false).
	WithoutAppArmor bool
	// UserNamespaces gives pods with hostUsers: false a user namespace
	// (UserNamespacesStatelessPodsSupport).
	UserNamespaces bool
	// MemoryQoS protects the memory that pods request (MemoryQoS).
	MemoryQoS bool
	// Claims lets drivers prepare the resource claims of pods (DynamicResourceAllocation).
	Claims bool
	// ClaimResources shows the devices of claims in the pod resources API
	// (SvcletPodResourcesDynamicResources).
	ClaimResources bool
	// CgroupDriverFromCRI takes the cgroup driver from the container runtime
	// (SvcletCgroupDriverFromCRI).
	CgroupDriverFromCRI bool
	// VolumeHealth asks CSI drivers for the health of volumes (CSIVolumeHealth).
	VolumeHealth bool
	// MigratePortworx mounts volumes of type portworxVolume by their CSI driver
	// (CSIMigrationPortworx).
	MigratePortworx bool
	// Quotas measures volumes by project quotas
	// (LocalStorageCapacityIsolationFSQuotaMonitoring).
	Quotas bool
	// Checkpoint serves /checkpoint/ (ContainerCheckpoint).
	Checkpoint bool
	// WatchList requests lists as streams.
	WatchList bool
	// WithoutSidecars refuses pods with init containers that are restarted
	// (SidecarContainers=false).
	WithoutSidecars bool
	// WithoutHostIPs leaves status.hostIPs of pods empty (PodHostIPs=false).
	WithoutHostIPs bool
	// WithoutCDIDevices ignores the CDI devices of device plugins
	// (DevicePluginCDIDevices=false).
	WithoutCDIDevices bool
	// WithoutPodResourcesGet refuses the method Get of the pod resources API
	// (SvcletPodResourcesGet=false).
	WithoutPodResourcesGet bool
	// WithoutResize does not change the resources of running pods
	// (InPlacePodVerticalScaling=false).
	WithoutResize bool
	// WithoutInitResize does not change those of init containers other than sidecars (the
	// node of svc up at releases without InPlacePodVerticalScalingInitContainers).
	WithoutInitResize bool
	// WithoutRestartAll does not restart all containers of a pod by a rule of one (the node of svc
	// up at releases without RestartAllContainersOnContainerExits).
	WithoutRestartAll bool
	// QuotaOfExclusiveCPUs limits containers with exclusive CPUs by the CFS quota, too (the node
	// of svc up at releases without DisableCPUQuotaWithExclusiveCPUs).
	QuotaOfExclusiveCPUs bool
	// WithoutReadyToStart leaves out the condition PodReadyToStartContainers
	// (PodReadyToStartContainersCondition=false).
	WithoutReadyToStart bool
}

// ActsOn reports whether svclet acts on a gate.
func ActsOn(name string) bool { return gateEffects()[name] != "" }

// GateEffect returns the effect of a gate in svclet; empty for none.
func GateEffect(name string) string { return gateEffects()[name] }

// NewGates returns the gates with an effect, of a set of all gates.
func NewGates(gates featuregate.FeatureGate) Gates {
	return Gates{
		WithoutAppArmor: !gates.Enabled(gateAppArmor), WatchList: gates.Enabled(gateWatchList),
		WithoutCDIDevices: !gates.Enabled(gateCDIDevices), WithoutPodResourcesGet: !gates.Enabled(gatePodResourcesGet),
		WithoutSidecars: !gates.Enabled(gateSidecars), WithoutHostIPs: !gates.Enabled(gateHostIPs), WithoutReadyToStart: !gates.Enabled(gateReadyToStart),
		MemoryQoS: gates.Enabled(gateMemoryQoS),
		Claims:    gates.Enabled(gateClaims), ClaimResources: gates.Enabled(gateClaimResources),
		Checkpoint: gates.Enabled(gateCheckpoint), UserNamespaces: gates.Enabled(gateUserNamespaces),
		WithoutResize:       !gates.Enabled(gateResize),
		CgroupDriverFromCRI: gates.Enabled(gateCgroupDriver), VolumeHealth: gates.Enabled(gateVolumeHealth), MigratePortworx: gates.Enabled(gatePortworx),
		Quotas: gates.Enabled(gateQuotas),
	}
}
