package config

import (
	"math"
	"time"
)

// maxPIDs is the kernel's limit of pids.max (PID_MAX_LIMIT, on 64-bit machines).
const maxPIDs = 1 << 22

// userBlock is the unit of the users of pods (KEP-127).
const userBlock = 65536

func podSettings() []Setting {
	return []Setting{
		{Flag: "max-pods", Field: "maxPods", Deprecated: true, Rule: atLeast(0), Usage: "Maximum number of pods on this node."},
		{Flag: "pods-per-core", Field: "podsPerCore", Deprecated: true, Rule: atLeast(0), Usage: "Maximum number of pods per core; the total is never above --max-pods. 0 means no limit."},
		{Flag: "pod-max-pids", Field: "podPidsLimit", Deprecated: true, Rule: from(-1, maxPIDs), Usage: "Maximum number of processes per pod. -1 means the node's allocatable number, and so does 0."},
		{Flag: "sync-frequency", Field: "syncFrequency", Deprecated: true, Rule: positive(),
			Usage: "Longest time between two syncs of running pods, besides those caused by events; at least 1s. svclet is unhealthy if the changes of its sources are not synced after twice this time (at least 5 minutes)."},
		{Flag: "allowed-unsafe-sysctls", Field: "allowedUnsafeSysctls", Deprecated: true, Usage: "Unsafe sysctls, or patterns that end in *, that pods may set."},
		{Field: "defaultPodSysctls", Rule: namespacedSysctls(), Usage: "Sysctls of pods that do not set them, in the namespaces that are the pod's own."},
		{Flag: "seccomp-default", Field: "seccompDefault", Usage: "Use the seccomp profile RuntimeDefault for containers that specify none."},
		{Field: "userNamespaces.idsPerPod", Rule: multipleOf(userBlock, math.MaxUint32/userBlock*userBlock),
			Usage: "Number of users, and of groups, of each pod with `hostUsers: false` (feature gate UserNamespacesStatelessPodsSupport)."},
		{Flag: "volume-plugin-dir", Field: "volumePluginDir", Deprecated: true, Usage: "Directory of FlexVolume drivers: VENDOR~DRIVER/DRIVER is the program of the driver VENDOR/DRIVER. Programs are found and replaced while svclet runs."},
		{Flag: "volume-stats-agg-period", Field: "volumeStatsAggPeriod", Deprecated: true,
			Usage: "How often the disk usage of volumes is computed. 0 means never; in a file, where 0 means the default, a negative value does."},
		{Flag: "local-storage-capacity-isolation", Field: "localStorageCapacityIsolation", Deprecated: true, Usage: "Report and isolate ephemeral storage as a resource of the node."},
		{Flag: "keep-terminated-pod-volumes", Deprecated: true, Usage: "Keep the volumes, and the cgroups, of pods that have ended mounted until the pods are deleted."},
		{Flag: "maximum-dead-containers", Deprecated: true, Rule: from(-1, math.MaxInt32),
			Usage: "Maximum number of terminated containers of the node that are kept; the oldest are removed first. A negative value means no limit. The newest instance of a container is kept in any case."},
		{Flag: "maximum-dead-containers-per-container", Deprecated: true, Rule: from(-1, math.MaxInt32),
			Usage: "Maximum number of terminated instances that are kept of each container, besides its newest instance. A negative value means all."},
		{Flag: "minimum-container-ttl-duration", Deprecated: true, Rule: notNegative(), Usage: "Minimum age of a terminated container before it is removed."},
		{Field: "crashLoopBackOff.maxContainerRestartPeriod", Rule: durationRule(time.Second, 5*time.Minute, "from 1s to 5m0s"),
			Usage: "Maximum backoff delay before a container that keeps ending is restarted."},
	}
}

func networkSettings() []Setting {
	return []Setting{
		{Flag: "cluster-dns", Field: "clusterDNS", Deprecated: true, Rule: ips(),
			Usage: "IP addresses of the DNS servers of pods with dnsPolicy ClusterFirst. All of them must serve the same names."},
		{Flag: "cluster-domain", Field: "clusterDomain", Deprecated: true, Rule: oneWord(), Usage: "Domain of the cluster: containers search it besides the host's search domains."},
		{Flag: "resolv-conf", Field: "resolvConf", Deprecated: true, Usage: "Resolver configuration file of the host, the base of pods' DNS configuration. Empty means none."},
		{Flag: "hairpin-mode", Field: "hairpinMode", Deprecated: true, Rule: oneOf("promiscuous-bridge", "hairpin-veth", "none"),
			Usage: "How pods reach themselves through a Service, with svclet's own containerd: promiscuous-bridge and hairpin-veth both let the bridge return packets to the interface that they come from; with none, new pods may not reach themselves. Network plugins of another runtime have settings of their own."},
		{Flag: "pod-cidr", Field: "podCIDR", Deprecated: true, Rule: cidrs(), Usage: "CIDR of pods' IP addresses, passed to the container runtime. Used in standalone mode only; with --svcconfig the node's spec.podCIDR is."},
	}
}

func resourceSettings() []Setting {
	reserved := ", such as cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000."
	return []Setting{
		{Flag: "cgroups-per-qos", Field: "cgroupsPerQOS", Deprecated: true, Usage: "Create a cgroup for each QoS class and for each pod."},
		{Flag: "cgroup-driver", Field: "cgroupDriver", Deprecated: true, Rule: oneOf("cgroupfs", "systemd"), Usage: "Driver that manages cgroups: cgroupfs or systemd. Must be the same as the container runtime's, unless the feature gate SvcletCgroupDriverFromCRI is on."},
		{Flag: "cgroup-root", Field: "cgroupRoot", Deprecated: true, Usage: "Cgroup that holds the cgroups of pods."},
		{Flag: "cpu-cfs-quota", Field: "cpuCFSQuota", Deprecated: true, Usage: "Enforce CPU limits of containers by CFS quota."},
		{Flag: "cpu-cfs-quota-period", Field: "cpuCFSQuotaPeriod", Deprecated: true, Rule: durationRule(time.Millisecond, time.Second, "from 1ms to 1s"),
			Usage: "CFS quota period. A value other than 100ms needs the feature gate CustomCPUCFSQuotaPeriod."},
		{Flag: "svc-reserved", Also: []string{"kube-reserved"}, Field: "kubeReserved", Deprecated: true, Rule: reservations(), Usage: "Resources reserved for the node's agents" + reserved},
		{Flag: "system-reserved", Field: "systemReserved", Deprecated: true, Rule: reservations(), Usage: "Resources reserved for system daemons" + reserved},
		{Flag: "reserved-cpus", Field: "reservedSystemCPUs", Deprecated: true, Rule: cpuList(),
			Usage: "CPUs reserved for the system, such as 0-1,4. Their number replaces cpu in --svc-reserved and --system-reserved. Excludes --svc-reserved-cgroup and --system-reserved-cgroup."},
		{Flag: "svc-reserved-cgroup", Also: []string{"kube-reserved-cgroup"}, Field: "kubeReservedCgroup", Deprecated: true, Rule: absolute("an absolute name, as /svc"),
			Usage: "Top-level cgroup on which --svc-reserved is enforced."},
		{Flag: "system-reserved-cgroup", Field: "systemReservedCgroup", Deprecated: true, Rule: absolute("an absolute name, as /system"), Usage: "Top-level cgroup on which --system-reserved is enforced."},
		{Flag: "enforce-node-allocatable", Field: "enforceNodeAllocatable", Deprecated: true, Rule: enforcements(),
			Usage: "Levels at which node allocatable is enforced: none, or some of pods, system-reserved, kube-reserved, system-reserved-compressible and kube-reserved-compressible. " +
				"The last four need the cgroup flag of the same name."},
		{Flag: "qos-reserved", Field: "qosReserved", Deprecated: true, Rule: percentages(),
			Usage: "Share of the requested memory that is reserved at the QoS level, such as memory=50% (alpha; feature gate QOSReserved). " +
				"Burstable pods cannot use that share of the requests of guaranteed pods, best-effort pods not that of both."},
		{Field: "singleProcessOOMKill", Usage: "Kill a single process of a container that runs out of memory, instead of all (memory.oom.group). Cgroup v2 only; on v1 it cannot be false."},
		{Field: "memoryThrottlingFactor", Usage: "With the feature gate MemoryQoS on cgroup v2, a container is throttled when it uses its memory request and this part of what is between that and its limit, or the node's allocatable without a limit."},
		{Field: "memoryReservationPolicy", Rule: oneOf("", "None", "TieredReservation"),
			Usage: "What the feature gate MemoryQoS protects of the memory that pods request, on cgroup v2: by default all of it from any reclaim (memory.min); TieredReservation only that of guaranteed pods, while that of burstable ones is reclaimed last (memory.low); None nothing."},
		{Field: "memorySwap.swapBehavior", Rule: oneOf("", "NoSwap", "LimitedSwap"),
			Usage: "Swap available to containers: NoSwap (the default), or LimitedSwap: burstable pods may swap in proportion to their memory requests (cgroup v2, feature gate NodeSwap)."},
	}
}

// allocationSettings are those of resources that single containers have alone.
func allocationSettings() []Setting {
	return []Setting{
		{Flag: "cpu-manager-policy", Field: "cpuManagerPolicy", Deprecated: true, Rule: oneOf("none", CPUManagerStatic),
			Usage: "none, or static: containers of guaranteed pods that request whole CPUs get CPUs of their own. Needs reserved CPUs: --reserved-cpus, or cpu in --svc-reserved or --system-reserved. " +
				"Before it is changed, the node has to be drained and cpu_manager_state removed from the root directory."},
		{Flag: "cpu-manager-policy-options", Field: "cpuManagerPolicyOptions", Deprecated: true,
			Usage: "Options of the static policy, as key=true: full-pcpus-only allocates whole cores (beta); distribute-cpus-across-numa takes CPUs evenly from NUMA nodes, align-by-socket considers the CPUs of a socket as aligned (alpha: feature gate CPUManagerPolicyAlphaOptions)."},
		{Flag: "cpu-manager-reconcile-period", Field: "cpuManagerReconcilePeriod", Deprecated: true, Rule: positive(),
			Usage: "How often the CPUs of running containers are compared with those they should have (alpha)."},
		{Flag: "memory-manager-policy", Field: "memoryManagerPolicy", Deprecated: true, Rule: oneOf("None", MemoryManagerStatic),
			Usage: "None, or Static: containers of guaranteed pods get memory of as few NUMA nodes as possible (feature gate MemoryManager). Needs --reserved-memory. " +
				"Before it is changed, the node has to be drained and memory_manager_state removed from the root directory."},
		{Flag: "reserved-memory", Field: "reservedMemory", Deprecated: true, Rule: memoryReservations(),
			Usage: "Memory of NUMA nodes that the policy Static keeps from pods, such as 0:memory=1Gi,hugepages-2Mi=64Mi. " +
				"The memory of all nodes must be the sum of memory in --svc-reserved, --system-reserved and memory.available in --eviction-hard. It may be given several times."},
		{Flag: "topology-manager-policy", Field: "topologyManagerPolicy", Deprecated: true, Rule: oneOf("none", "best-effort", "restricted", "single-numa-node"),
			Usage: "How resources are aligned by NUMA node: none; best-effort admits every pod; restricted rejects pods for which the preferred nodes have not enough; single-numa-node rejects those that need more than one."},
		{Flag: "topology-manager-policy-options", Field: "topologyManagerPolicyOptions", Deprecated: true,
			Usage: "Options of the topology policies, as key=true: prefer-closest-numa-nodes prefers sets of nodes with a shorter distance (beta; feature gate TopologyManagerPolicyBetaOptions)."},
		{Flag: "topology-manager-scope", Field: "topologyManagerScope", Deprecated: true, Rule: oneOf("container", TopologyScopePod),
			Usage: "Whether the resources of each container, or of all containers of a pod together, are aligned."},
	}
}

// Values of cpuManagerPolicy, memoryManagerPolicy and topologyManagerScope.
const (
	CPUManagerStatic    = "static"
	MemoryManagerStatic = "Static"
	TopologyScopePod    = "pod"
)

func processSettings() []Setting {
	return []Setting{
		{Flag: "fail-swap-on", Field: "failSwapOn", Deprecated: true, Usage: "Fail to start if swap is enabled on the host."},
		{Field: "failCgroupV1", Usage: "Fail to start on a host with cgroup v1. Kubelet's default is true."},
		{Flag: "protect-kernel-defaults", Field: "protectKernelDefaults", Deprecated: true, Usage: "Fail to start if a kernel setting differs from what svclet needs, instead of changing it."},
		{Flag: "oom-score-adj", Field: "oomScoreAdj", Deprecated: true, Rule: from(-1000, 1000), Usage: "The oom_score_adj of svclet, from -1000 (never killed) to 1000."},
		{Flag: "max-open-files", Field: "maxOpenFiles", Deprecated: true, Rule: atLeast(1), Usage: "Maximum number of files that svclet can open."},
		{Flag: "svclet-cgroups", Also: []string{"kubelet-cgroups"}, Field: "kubeletCgroups", Deprecated: true, Rule: absolute("an absolute name, as /svclet"), Usage: "Cgroup that svclet moves itself into."},
		{Flag: "system-cgroups", Field: "systemCgroups", Deprecated: true, Rule: belowRoot("an absolute name other than /, as /system"),
			Usage: "Cgroup for system processes: every process in the root cgroup is moved into it, except for kernel threads and process 1. Checked every minute. " +
				"Created if it does not exist. Needs --cgroup-root. Undone by a reboot."},
		{Flag: "runtime-cgroups", Rule: absolute("an absolute name, as /containerd"), Usage: "Cgroup of the container runtime, reported in the summary statistics."},
		{Flag: "lock-file", Usage: "Lock file: svclet waits for its lock and holds it while it runs (alpha)."},
		{Flag: "exit-on-lock-contention", Usage: "Exit if another process opens the lock file. Needs --lock-file."},
	}
}

func logSettings() []Setting {
	return []Setting{
		{Flag: "v", Short: "v", Field: "logging.verbosity", Usage: "Log verbosity; 0 is the lowest."},
		{Flag: "vmodule", Field: "logging.vmodule", Usage: "Log verbosity of single source files, as pattern=N,pattern2=N (format text only)."},
		{Flag: "logging-format", Field: "logging.format", Deprecated: true, Usage: "Log format: text, or json with the feature gate LoggingBetaOptions."},
		{Flag: "log-flush-frequency", Field: "logging.flushFrequency", Rule: positive(), Usage: "Maximum time between log flushes."},
		{Flag: "log-json-split-stream", Field: "logging.options.json.splitStream", Deprecated: true,
			Usage: "In the format json, write errors to stderr and the rest to stdout (alpha; feature gate LoggingAlphaOptions)."},
		{Flag: "log-json-info-buffer-size", Field: "logging.options.json.infoBufferSize", Deprecated: true,
			Usage: "In the format json with split streams, size of the buffer of info messages, in bytes (alpha; feature gate LoggingAlphaOptions)."},
		{Field: "logging.options.text.splitStream", Usage: "The same in the format text (alpha)."},
		{Field: "logging.options.text.infoBufferSize", Usage: "The same in the format text (alpha)."},
	}
}
