package config

import (
	"time"
)

func podSettings() []Setting {
	return []Setting{
		{Flag: "max-pods", Field: "maxPods", Deprecated: true, Rule: atLeast(0), Usage: "Pods of this node at most."},
		{Flag: "pods-per-core", Field: "podsPerCore", Deprecated: true, Rule: atLeast(0), Usage: "Pods for each core at most, never more than --max-pods. 0 sets no such bound."},
		{Flag: "pod-max-pids", Field: "podPidsLimit", Deprecated: true, Usage: "Processes of a pod at most. -1 leaves it at what the node has for pods."},
		{Flag: "sync-frequency", Field: "syncFrequency", Deprecated: true, Rule: positive(),
			Usage: "Longest time between two looks at what pods do, besides those that events cause; 1s at least. svclet counts as unhealthy when what sources want is not all done after twice this time (5 minutes at least)."},
		{Flag: "allowed-unsafe-sysctls", Field: "allowedUnsafeSysctls", Deprecated: true, Usage: "Unsafe sysctls that pods may set, or patterns that end in *."},
		{Flag: "seccomp-default", Field: "seccompDefault", Usage: "Have containers that name no seccomp profile use RuntimeDefault."},
		{Flag: "volume-stats-agg-period", Field: "volumeStatsAggPeriod", Deprecated: true,
			Usage: "How often the use of volumes is measured. 0 is never; in a file, where 0 stands for the default, a negative value is."},
		{Flag: "local-storage-capacity-isolation", Field: "localStorageCapacityIsolation", Deprecated: true, Usage: "Count ephemeral storage among the resources of the node."},
		{Field: "crashLoopBackOff.maxContainerRestartPeriod", Rule: durationRule(time.Second, 5*time.Minute, "from 1s to 5m0s"),
			Usage: "Longest pause before a container that keeps ending is started again."},
	}
}

func networkSettings() []Setting {
	return []Setting{
		{Flag: "cluster-dns", Field: "clusterDNS", Deprecated: true, Rule: ips(),
			Usage: "Addresses of the name servers of pods with the policy ClusterFirst. All of them must know the same names."},
		{Flag: "cluster-domain", Field: "clusterDomain", Deprecated: true, Rule: oneWord(), Usage: "Domain that containers search, besides those of the host."},
		{Flag: "resolv-conf", Field: "resolvConf", Deprecated: true, Usage: "Resolver configuration that pods get from the host. Empty is none."},
		{Flag: "pod-cidr", Field: "podCIDR", Deprecated: true, Rule: cidrs(), Usage: "Addresses for pods, which the runtime is configured with. Only without --svcconfig; else the node's podCIDR is."},
	}
}

func resourceSettings() []Setting {
	reserved := ", as cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000."
	return []Setting{
		{Flag: "cgroups-per-qos", Field: "cgroupsPerQOS", Deprecated: true, Usage: "Have cgroups for classes of pods and for each pod."},
		{Flag: "cgroup-driver", Field: "cgroupDriver", Deprecated: true, Rule: oneOf("cgroupfs", "systemd"), Usage: "Who manages cgroups: cgroupfs or systemd. It must be the runtime's, too."},
		{Flag: "cgroup-root", Field: "cgroupRoot", Deprecated: true, Usage: "Cgroup in which those of pods are."},
		{Flag: "cpu-cfs-quota", Field: "cpuCFSQuota", Deprecated: true, Usage: "Enforce the CPU limits of containers."},
		{Flag: "cpu-cfs-quota-period", Field: "cpuCFSQuotaPeriod", Deprecated: true, Rule: durationRule(time.Millisecond, time.Second, "from 1ms to 1s"),
			Usage: "Period in which CPU limits are enforced. Another than 100ms needs the feature gate CustomCPUCFSQuotaPeriod."},
		{Flag: "svc-reserved", Also: []string{"kube-reserved"}, Field: "kubeReserved", Deprecated: true, Rule: reservations(), Usage: "What is kept from pods for the node's agents" + reserved},
		{Flag: "system-reserved", Field: "systemReserved", Deprecated: true, Rule: reservations(), Usage: "What is kept from pods for everything else" + reserved},
		{Flag: "reserved-cpus", Field: "reservedSystemCPUs", Deprecated: true, Rule: cpus(),
			Usage: "CPUs that are kept from pods, as 0-1,4. Their number takes the place of cpu in --svc-reserved and --system-reserved. Excludes the cgroups of both."},
		{Flag: "svc-reserved-cgroup", Also: []string{"kube-reserved-cgroup"}, Field: "kubeReservedCgroup", Deprecated: true, Rule: absolute("an absolute name, as /svc"),
			Usage: "Top-level cgroup on which --svc-reserved is enforced."},
		{Flag: "system-reserved-cgroup", Field: "systemReservedCgroup", Deprecated: true, Rule: absolute("an absolute name, as /system"), Usage: "Top-level cgroup on which --system-reserved is enforced."},
		{Flag: "enforce-node-allocatable", Field: "enforceNodeAllocatable", Deprecated: true, Rule: enforcements(),
			Usage: "On what bounds are enforced: none, or some of pods, system-reserved, kube-reserved, system-reserved-compressible and kube-reserved-compressible. " +
				"The latter four need the cgroup of the same name."},
		{Flag: "qos-reserved", Field: "qosReserved", Deprecated: true, Rule: percentages(),
			Usage: "How much of the memory that pods request is kept from pods of lower classes, as memory=50% (alpha; feature gate QOSReserved). " +
				"Burstable pods together may not use that share of what guaranteed ones request; best-effort pods not that of both."},
		{Field: "singleProcessOOMKill", Usage: "Kill only one process of a container that runs out of memory, and not all. Cgroup v2 only; on v1 it cannot be false."},
		{Field: "memorySwap.swapBehavior", Rule: oneOf("", "NoSwap", "LimitedSwap"),
			Usage: "Whether containers may swap: NoSwap (if left out), or LimitedSwap, which lets burstable ones swap in proportion to their memory requests (cgroup v2, feature gate NodeSwap)."},
	}
}

func processSettings() []Setting {
	return []Setting{
		{Flag: "fail-swap-on", Field: "failSwapOn", Deprecated: true, Usage: "Refuse to start while the host swaps."},
		{Field: "failCgroupV1", Usage: "Refuse to start on a host with cgroup v1. Kubelet's default is true."},
		{Flag: "protect-kernel-defaults", Field: "protectKernelDefaults", Deprecated: true, Usage: "Refuse to start when a kernel setting is not as svclet needs it, instead of setting it."},
		{Flag: "oom-score-adj", Field: "oomScoreAdj", Deprecated: true, Rule: from(-1000, 1000), Usage: "How readily the kernel kills svclet when memory runs out; -1000 is never."},
		{Flag: "max-open-files", Field: "maxOpenFiles", Deprecated: true, Rule: atLeast(1), Usage: "Files that svclet may have open."},
		{Flag: "svclet-cgroups", Also: []string{"kubelet-cgroups"}, Field: "kubeletCgroups", Deprecated: true, Rule: absolute("an absolute name, as /svclet"), Usage: "Cgroup that svclet puts itself into."},
		{Flag: "system-cgroups", Field: "systemCgroups", Deprecated: true, Rule: belowRoot("an absolute name other than /, as /system"),
			Usage: "Cgroup that the processes of the system are put into: all that are in no cgroup but the root, except for threads of the kernel and process 1. Looked for each minute. " +
				"It is made where it is not there. Needs --cgroup-root. To take it back, the machine has to start again."},
		{Flag: "runtime-cgroups", Rule: absolute("an absolute name, as /containerd"), Usage: "The container runtime's own cgroup: the statistics tell what it uses."},
		{Flag: "lock-file", Usage: "File that is locked while svclet runs; it waits for the lock (alpha)."},
		{Flag: "exit-on-lock-contention", Usage: "Exit when another process opens the lock file. Needs --lock-file."},
	}
}

func logSettings() []Setting {
	return []Setting{
		{Flag: "v", Short: "v", Field: "logging.verbosity", Usage: "Verbosity of the logs; 0 is the least."},
		{Flag: "vmodule", Field: "logging.vmodule", Usage: "Verbosity of single source files, as pattern=N,pattern2=N (format text only)."},
		{Flag: "logging-format", Field: "logging.format", Deprecated: true, Usage: "text, or json if the feature gate LoggingBetaOptions is on."},
		{Flag: "log-flush-frequency", Field: "logging.flushFrequency", Rule: positive(), Usage: "Longest time before what was logged is written out."},
		{Flag: "log-json-split-stream", Field: "logging.options.json.splitStream", Deprecated: true,
			Usage: "In the format json, write errors to stderr and the rest to stdout (alpha; feature gate LoggingAlphaOptions)."},
		{Flag: "log-json-info-buffer-size", Field: "logging.options.json.infoBufferSize", Deprecated: true,
			Usage: "In the format json with split streams, bytes of information that are kept back (alpha; feature gate LoggingAlphaOptions)."},
		{Field: "logging.options.text.splitStream", Usage: "The same in the format text (alpha)."},
		{Field: "logging.options.text.infoBufferSize", Usage: "The same in the format text (alpha)."},
	}
}
