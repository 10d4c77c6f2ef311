package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/suggest"
)

// The gates with an effect in svclet. All others are accepted, so that the
// components of a cluster can have the same gates, and have no effect.
const (
	gateAppArmor       = "AppArmor"
	gateCFSQuotaPeriod = "CustomCPUCFSQuotaPeriod"
	gateLoggingAlpha   = "LoggingAlphaOptions"
	gateLoggingBeta    = "LoggingBetaOptions"
	gateNodeSwap       = "NodeSwap"
	gateQOSReserved    = "QOSReserved"
	gateRotateServing  = "RotateSvcletServerCertificate"
	gateWatchList      = "WatchList"
)

// gateEffects returns the effect of each gate.
func gateEffects() map[string]string {
	return map[string]string{
		gateAppArmor:       "Pods that ask for an AppArmor profile are taken, if the host has AppArmor.",
		gateCFSQuotaPeriod: "`cpuCFSQuotaPeriod` may be other than 100ms.",
		gateLoggingAlpha:   "The options of the formats of logs may be set.",
		gateLoggingBeta:    "The format of logs may be json.",
		gateWatchList:      "Lists are asked for as streams of the API server.",
		gateNodeSwap:       "`memorySwap.swapBehavior` may be LimitedSwap.",
		gateQOSReserved:    "`qosReserved` may be set.",
		gateRotateServing:  "`serverTLSBootstrap` may be true.",
	}
}

// Gates are the feature gates with an effect.
type Gates struct {
	// WithoutAppArmor refuses pods with AppArmor profiles even if the host supports it
	// (AppArmor=false).
	WithoutAppArmor bool
	// WatchList requests lists as streams.
	WatchList bool
}

// Gate is a feature gate of document 3 section 9.
type Gate struct {
	Name, Stage string
	Default     bool
	// Effect is its effect in svclet; empty for none.
	Effect string
}

// AllGates returns the gates by name, without AllAlpha and AllBeta.
func AllGates() []Gate {
	var all []Gate
	effects := gateEffects()
	add := func(stage string, on bool, names string) {
		for name := range strings.FieldsSeq(names) {
			all = append(all, Gate{name, stage, on, effects[name]})
		}
	}
	add("beta", true, betaOn)
	add("beta", false, betaOff)
	add("alpha", false, alphaOff)
	add("alpha", true, alphaOn)
	slices.SortFunc(all, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// newGates returns a new set of the gates at their defaults.
func newGates() (featuregate.MutableFeatureGate, error) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, gate := range AllGates() {
		spec := featuregate.FeatureSpec{Default: gate.Default, PreRelease: featuregate.Beta}
		if gate.Stage == "alpha" {
			spec.PreRelease = featuregate.Alpha
		}
		specs[featuregate.Feature(gate.Name)] = spec
	}
	gates := featuregate.NewFeatureGate()
	return gates, gates.Add(specs)
}

// gateNames returns the names that --feature-gates accepts.
func gateNames() []string {
	names := []string{"AllAlpha", "AllBeta"}
	for _, gate := range AllGates() {
		names = append(names, gate.Name)
	}
	return names
}

// ownGate returns svclet's name of a gate for Kubernetes' name.
func ownGate(name string) string {
	return strings.NewReplacer("Kubelet", "Svclet", "KubeProxy", "SvcProxy").Replace(name)
}

// unknownGate returns the message for a gate that does not exist.
func unknownGate(name string) string {
	if similar := suggest.Closest(name, gateNames()); similar != "" {
		return fmt.Sprintf("%s is not a known feature gate; did you mean %s?", name, similar)
	}
	return name + " is not a known feature gate; docs/reference/svclet.md lists them"
}

// The gates of document 3 section 9. Its placeholders for cloud providers are replaced
// by the providers of Kubernetes 1.28.
const (
	betaOn = `APIListChunking APIPriorityAndFairness APIResponseCompression APIServerIdentity APIServerTracing
AdmissionWebhookMatchConditions AggregatedDiscoveryEndpoint AnyVolumeDataSource AppArmor CPUManagerPolicyBetaOptions
CPUManagerPolicyOptions CSINodeExpandSecret ComponentSLIs CronJobsScheduledAnnotation
CustomResourceValidationExpressions ElasticIndexedJob GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
HPAContainerMetrics JobPodFailurePolicy JobReadyPods KMSv2 SvcletTracing LogarithmicScaleDown LoggingBetaOptions
MatchLabelKeysInPodTopologySpread MemoryManager MinDomainsInPodTopologySpread NewVolumeManagerReconstruction
NodeInclusionPolicyInPodTopologySpread OpenAPIEnums PDBUnhealthyPodEvictionPolicy PodDeletionCost
PodDisruptionConditions PodIndexLabel PodSchedulingReadiness ReadWriteOncePod RemainingItemCount
RotateSvcletServerCertificate SELinuxMountReadWriteOncePod SchedulerQueueingHints ServiceNodePortStaticSubrange
SizeMemoryBackedVolumes StableLoadBalancerNodeSet StatefulSetAutoDeletePVC StatefulSetStartOrdinal
StorageVersionHash TopologyAwareHints TopologyManagerPolicyOptions WinOverlay`

	betaOff = `CSIMigrationPortworx EventedPLEG KMSv2KDF NodeSwap TopologyManagerPolicyBetaOptions
ValidatingAdmissionPolicy`

	alphaOff = `CPUManagerPolicyAlphaOptions CRDValidationRatcheting CSIVolumeHealth CloudControllerManagerWebhook
CloudDualStackNodeIPs ClusterTrustBundle ConsistentListFromCache ContainerCheckpoint ContextualLogging
CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod DevicePluginCDIDevices DisableCloudProviders
DisableSvcletCloudCredentialProviders DynamicResourceAllocation HPAScaleToZero HonorPVReclaimPolicy
InPlacePodVerticalScaling InTreePluginAWSUnregister InTreePluginAzureDiskUnregister
InTreePluginAzureFileUnregister InTreePluginGCEUnregister InTreePluginOpenStackUnregister
InTreePluginPortworxUnregister InTreePluginvSphereUnregister JobBackoffLimitPerIndex JobPodReplacementPolicy
SvcProxyDrainingTerminatingNodes SvcletCgroupDriverFromCRI SvcletInUserNamespace
SvcletPodResourcesDynamicResources SvcletPodResourcesGet LegacyServiceAccountTokenCleanUp
LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions MaxUnavailableStatefulSet MemoryQoS
MultiCIDRRangeAllocator MultiCIDRServiceAllocator NodeLogQuery PersistentVolumeLastPhaseTransitionTime
PodAndContainerStatsFromCRI PodHostIPs PodReadyToStartContainersCondition ProcMountType QOSReserved
RecoverVolumeExpansionFailure SecurityContextDeny SidecarContainers SkipReadOnlyValidationGCE StorageVersionAPI
TopologyManagerPolicyAlphaOptions UnknownVersionInteroperabilityProxy UserNamespacesStatelessPodsSupport
VolumeCapacityPriority WatchList WinDSR`

	alphaOn = `WindowsHostNetwork`
)
