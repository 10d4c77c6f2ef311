package config

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"
)

func feature(name string) featuregate.Feature { return featuregate.Feature(name) }

func TestBadFlagsOfTheAgentAreRefusedInOneLineEach(t *testing.T) {
	testBadCommandLines(t, []badCommandLine{
		{"--bogus", "unknown flag --bogus; svclet --help lists them"},
		{"--max-pod=1", "unknown flag --max-pod; did you mean --max-pods?"},
		{"run", `unexpected argument "run": only flags are taken, as --svcconfig=FILE`},
		{"--max-pods", "a value is missing after --max-pods"},
		{"--max-pods=-1", "--max-pods (maxPods) is -1: must be 0 or more"},
		{"--max-pods=3000000000", `--max-pods (maxPods): "3000000000" is out of range: no number from -2147483648 to 2147483647`},
		{"--max-pods=1.5", `--max-pods (maxPods): "1.5" is not a whole number`},
		{"--serialize-image-pulls=maybe", `--serialize-image-pulls (serializeImagePulls): "maybe" is not true or false`},
		{"--sync-frequency=60", `--sync-frequency (syncFrequency): "60" is not a duration, as 30s or 5m`},
		{"--sync-frequency=0s", "--sync-frequency (syncFrequency) is 0s: must be above 0"},
		{"--authorization-mode=RBAC", `--authorization-mode (authorization.mode) is "RBAC": must be AlwaysAllow or Webhook`},
		{"--authorization-mode=Webhook", "--authorization-mode (authorization.mode) is Webhook, which asks the API server: give --svcconfig, or set it to AlwaysAllow"},
		{"--authentication-token-webhook", "--authentication-token-webhook (authentication.webhook.enabled) is true, which asks the API server: give --svcconfig, or set it to false"},
		{"--runonce --enable-server --pod-manifest-path=/x", "--runonce (runOnce) excludes enableServer (--enable-server): set one of them to false"},
		{"--runonce", "--runonce (runOnce) needs pods: set staticPodPath (--pod-manifest-path) or staticPodURL (--manifest-url), too"},
		{"--exit-on-lock-contention", "--exit-on-lock-contention needs a lock: give --lock-file, too"},
		{"--feature-gates=NodeSwop=true", "--feature-gates (featureGates): NodeSwop is not a known feature gate; did you mean NodeSwap?"},
		{"--feature-gates=NodeSwap", `--feature-gates (featureGates): "NodeSwap" has a part that is not key=value`},
		{"--logging-format=xml", `--logging-format (logging.format) is "xml": must be text or json`},
		{"--log-json-split-stream", "--log-json-split-stream (logging.options.json.splitStream): feature LoggingAlphaOptions is disabled; --feature-gates=LoggingAlphaOptions=true enables it"},
		{"--log-flush-frequency=0s", "--log-flush-frequency (logging.flushFrequency) is 0s: must be above 0"},
		{"--feature-gates=KubeletPodResources=false", "--feature-gates (featureGates): cannot set feature gate SvcletPodResources to false, feature is locked to true"},
	})
}

func TestBadFlagsOfResourcesAreRefusedInOneLineEach(t *testing.T) {
	testBadCommandLines(t, []badCommandLine{
		{"--eviction-hard=memory.free<1Gi", `--eviction-hard (evictionHard): unsupported signal "memory.free": one of memory.available, nodefs.available`},
		{"--eviction_hard memory.available<-1", `--eviction-hard (evictionHard): memory.available: invalid value "-1": must be a quantity, as 100Mi, or a percentage, as 10%`},
		{"--eviction-soft=memory.available<1Gi", "--eviction-soft (evictionSoft): memory.available has a soft threshold: it needs a grace period"},
		{"--eviction-soft-grace-period=memory.free=1m", `--eviction-soft-grace-period (evictionSoftGracePeriod): unsupported signal "memory.free": one of memory.available`},
		{"--eviction-minimum-reclaim=memory.available=110%", `--eviction-minimum-reclaim (evictionMinimumReclaim): memory.available: invalid percentage "110%": must be from 0% to 100%`},
		{"--image-gc-low-threshold=90", "--image-gc-low-threshold (imageGCLowThresholdPercent) is 90: must not be above imageGCHighThresholdPercent (--image-gc-high-threshold), which is 85"},
		{"--memory-manager-policy=Static", "--memory-manager-policy (memoryManagerPolicy) is Static: set reservedMemory (--reserved-memory), too"},
		{"--reserved-memory=0:memory=1Gi", "--reserved-memory (reservedMemory) needs memoryManagerPolicy (--memory-manager-policy) Static: set it, or leave the reservations out"},
		{"--memory-manager-policy=Static --reserved-memory=0:memory=1Gi --feature-gates=MemoryManager=false", "--memory-manager-policy (memoryManagerPolicy) is Static: needs the feature gate MemoryManager"},
		{"--reserved-memory=0:1Gi", `--reserved-memory (reservedMemory): "0:1Gi" has a part that is not key=value`},
		{"--reserved-memory=memory=1Gi", `--reserved-memory (reservedMemory): "memory=1Gi" has a part that is not like 0:memory=1Gi`},
		{"--memory-manager-policy=Static --reserved-memory=0:cpu=1", "--reserved-memory (reservedMemory): must be of memory or hugepages-SIZE: has cpu of NUMA node 0"},
		{"--memory-manager-policy=Static --reserved-memory=0:memory=1;0:memory=2", "--reserved-memory (reservedMemory): must have each resource once: has twice memory of NUMA node 0"},
		{"--cpu-manager-policy=dynamic", `--cpu-manager-policy (cpuManagerPolicy) is "dynamic": must be none or static`},
		{"--cpu-manager-policy-options=full-pcpus-only=true", "--cpu-manager-policy-options (cpuManagerPolicyOptions) needs cpuManagerPolicy (--cpu-manager-policy) static"},
		{"--cpu-manager-policy=static --cpu-manager-policy-options=align-by-socket=true", "--cpu-manager-policy-options (cpuManagerPolicyOptions): option align-by-socket needs the feature gate CPUManagerPolicyAlphaOptions"},
		{"--topology-manager-policy=best", `--topology-manager-policy (topologyManagerPolicy) is "best": must be none, best-effort, restricted or single-numa-node`},
		{"--topology-manager-policy-options=prefer-closest-numa-nodes=true", "--topology-manager-policy-options (topologyManagerPolicyOptions): option prefer-closest-numa-nodes needs the feature gate TopologyManagerPolicyBetaOptions"},
		{"--kube-reserved=gpu=1", "--svc-reserved (kubeReserved): gpu cannot be reserved: only cpu, memory, ephemeral-storage, pid can"},
		{"--svc-reserved=cpu=x", "--svc-reserved (kubeReserved): cpu=x is not a quantity, such as 100m or 1Gi"},
		{"--svc-reserved=cpu", `--svc-reserved (kubeReserved): "cpu" has a part that is not key=value`},
		{"--oom-score-adj=-1001", "--oom-score-adj (oomScoreAdj) is -1001: must be from -1000 to 1000"},
		{"--container-log-max-files=1", "--container-log-max-files (containerLogMaxFiles) is 1: must be 2 or more"},
		{"--container-log-max-size=", `--container-log-max-size (containerLogMaxSize) is "": must be a quantity of bytes, as 10Mi`},
		{"--max-open-files=0", "--max-open-files (maxOpenFiles) is 0: must be 1 or more"},
		{"--container-log-max-size=big", `--container-log-max-size (containerLogMaxSize) is "big": must be a quantity of bytes, as 10Mi`},
		{"--reserved-cpus=a", `--reserved-cpus (reservedSystemCPUs) is "a": must be a list of CPUs, as 0-1,4`},
		{"--cgroup-driver=x", `--cgroup-driver (cgroupDriver) is "x": must be cgroupfs or systemd`},
		{"--enforce-node-allocatable=pods,kube-reserved", "--enforce-node-allocatable (enforceNodeAllocatable) has kube-reserved: set kubeReservedCgroup (--svc-reserved-cgroup), too"},
		{"--enforce-node-allocatable=system-reserved", "--enforce-node-allocatable (enforceNodeAllocatable) has system-reserved: set systemReservedCgroup (--system-reserved-cgroup), too"},
		{"--enforce-node-allocatable=none,pods", "--enforce-node-allocatable (enforceNodeAllocatable) has none: must have nothing else"},
		{"--enforce-node-allocatable=pod", `--enforce-node-allocatable (enforceNodeAllocatable): "pod" must be one of none, pods, system-reserved, kube-reserved, system-reserved-compressible or kube-reserved-compressible`},
		{"--cgroups-per-qos=false", "--enforce-node-allocatable (enforceNodeAllocatable) has pods: needs cgroupsPerQOS (--cgroups-per-qos); set it to true, or enforce none"},
		{"--system-cgroups=/system", "--system-cgroups (systemCgroups) needs cgroupRoot (--cgroup-root): set it, too; / is the root of all"},
		{"--system-cgroups=system --cgroup-root=/", `--system-cgroups (systemCgroups) is "system": must be an absolute name other than /, as /system`},
		{"--system-cgroups=/a/.. --cgroup-root=/", `--system-cgroups (systemCgroups) is "/a/..": must be an absolute name other than /, as /system`},
		{"--qos-reserved=memory=50%", "--qos-reserved (qosReserved) needs the feature gate QOSReserved"},
		{"--qos-reserved=memory=50% --feature-gates=QOSReserved=true --cgroups-per-qos=false --enforce-node-allocatable=none",
			"--qos-reserved (qosReserved) needs cgroupsPerQOS (--cgroups-per-qos): set it to true, or leave this out"},
		{"--qos-reserved=cpu=50% --feature-gates=QOSReserved=true", "--qos-reserved (qosReserved): cpu cannot be reserved by class: only memory can"},
		{"--qos-reserved=memory=50 --feature-gates=QOSReserved=true", "--qos-reserved (qosReserved): memory=50 is not memory=PERCENT%, from 0% to 100%"},
		{"--qos-reserved=memory=101% --feature-gates=QOSReserved=true", "--qos-reserved (qosReserved): memory=101% is not memory=PERCENT%, from 0% to 100%"},
		{"--cpu-cfs-quota-period=50ms", "--cpu-cfs-quota-period (cpuCFSQuotaPeriod) is 50ms: must be 100ms unless the feature gate CustomCPUCFSQuotaPeriod is on"},
		{"--pod-max-pids=-2", "--pod-max-pids (podPidsLimit) is -2: must be from -1 to 4194304"},
		{"--pod-max-pids=4194305", "--pod-max-pids (podPidsLimit) is 4194305: must be from -1 to 4194304"},
		{"--container-log-max-size=0", `--container-log-max-size (containerLogMaxSize) is "0": must not be 0; a negative value means no limit`},
		{"--container-log-max-size=1e20", `--container-log-max-size (containerLogMaxSize) is "1e20": is larger than any file; a negative value means no limit`},
	})
}

func TestBadFlagsOfConnectionsAndTheNodeAreRefusedInOneLineEach(t *testing.T) {
	testBadCommandLines(t, []badCommandLine{
		{"--bootstrap-kubeconfig=x", "--bootstrap-svcconfig needs --svcconfig, the file that is written: give it, too"},
		{"--rotate-server-certificates --svcconfig=/dev/null --feature-gates=RotateSvcletServerCertificate=false",
			"--rotate-server-certificates (serverTLSBootstrap) needs the feature gate RotateSvcletServerCertificate"},
		{"--rotate-server-certificates", "--rotate-server-certificates (serverTLSBootstrap) is true, which asks the API server: give --svcconfig, or set it to false"},
		{"--port=0", "--port (port) is 0: must be from 1 to 65535"},
		{"--address=here", `--address (address) is "here": must be an IP address`},
		{"--cluster-dns=10.0.0.1,dns", `--cluster-dns (clusterDNS): "dns" is not an IP address`},
		{"--node-ip=10.0.0.1,10.0.0.2", `--node-ip is "10.0.0.1,10.0.0.2": must be an IP address, or one of each family`},
		{"--hostname-override=a_b", `--hostname-override is "a_b": must be a DNS name in lower case, as node-1.example.org`},
		{"--tls-cert-file=a", "--tls-cert-file (tlsCertFile) needs its key: set tlsPrivateKeyFile (--tls-private-key-file), too"},
		{"--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHAH", `--tls-cipher-suites (tlsCipherSuites): "TLS_RSA_WITH_AES_128_CBC_SHAH" is not a supported cipher suite; did you mean TLS_RSA_WITH_AES_128_CBC_SHA?`},
		{"--tls-min-version=1.2", `--tls-min-version (tlsMinVersion) is "1.2": must be empty, VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13`},
		{"--image-credential-provider-config=x", "--image-credential-provider-config needs the programs: give --image-credential-provider-bin-dir, too"},
		{"--node-labels=x.kubernetes.io/y=z", `--node-labels: "x.kubernetes.io/y" may not be set`},
		{"--node-labels=a=b_", `--node-labels: "b_" is not a valid label value`},
		{"--register-with-taints=a=b", `--register-with-taints (registerWithTaints): "a=b" has a part that is not key=value:effect`},
		{"--register-with-taints=a=b:No", `--register-with-taints (registerWithTaints): "No" is not a supported taint effect: must be NoSchedule, PreferNoSchedule or NoExecute`},
		{"--manifest-url=ftp://x", `--manifest-url (staticPodURL) is "ftp://x": must be a URL that begins with http:// or https://`},
		{"--pod-cidr=10.0.0.0", `--pod-cidr (podCIDR) is "10.0.0.0": must be a range of addresses, as 10.1.0.0/24, or one of each family`},
		{"--cloud-provider=aws", `--cloud-provider is "aws": must be empty or external`},
		{"--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA", "--tls-cipher-suites (tlsCipherSuites): must have TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		{"--svcconfig=/nowhere", "--svcconfig: there is no file /nowhere"},
		{"--config=/nowhere", "--config: /nowhere: no such file or directory"},
		{"--config-dir=/nowhere", "--config-dir: /nowhere: no such file or directory"},
	})
}

// badCommandLine is a command line and the beginning of its only error.
type badCommandLine struct{ args, want string }

func testBadCommandLines(t *testing.T, cases []badCommandLine) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.args, func(t *testing.T) {
			args := strings.Fields(test.args)
			if !strings.Contains(test.args, "logging-format") {
				// The binary registers the format json.
				args = append([]string{"--logging-format=text"}, args...)
			}
			got := problems(t, args...)
			if len(got) != 1 || !strings.HasPrefix(got[0], test.want) || strings.Contains(got[0], "\n") {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	directory := write(t, map[string]string{"file": head + "maxPod: 1\nport: x\n"})
	got := problems(t, "--config", directory+"/file", "--bogus", "7", "--eviction-hard", "x", "--max-pods=-1", "--oom-score-adj=x", "--cgroup-driver", "x")
	if len(got) != 7 {
		t.Errorf("%d problems, want 7: %q", len(got), got)
	}
}

func TestDeprecatedFlagsNameTheFieldToSetInstead(t *testing.T) {
	for args, want := range map[string]string{
		"--max-pods=5":                        "--max-pods is deprecated; set maxPods in the file of --config",
		"--system-cgroups=/s --cgroup-root=/": "--cgroup-root is deprecated; set cgroupRoot in the file of --config|--system-cgroups is deprecated; set systemCgroups in the file of --config",
		"--kube-reserved=cpu=1":               "--svc-reserved is deprecated; set kubeReserved in the file of --config",
		"--max-pods=5 --max-pods=6":           "--max-pods is deprecated; set maxPods in the file of --config",
		"--cloud-config=x":                    "--cloud-config is deprecated and has no effect: there are no cloud providers in svclet",
		"--register-schedulable=false":        "--register-schedulable is deprecated",
		"--hairpin-mode=none":                 "--hairpin-mode is deprecated; set hairpinMode in the file of --config",
		"--node-labels=a=b":                   "",
		"--seccomp-default":                   "",
		"-v=4 --vmodule=a=1":                  "",
		"--feature-gates=QOSReserved=true --qos-reserved=memory=0%": "--feature-gates is deprecated; set featureGates in the file of --config|--qos-reserved is deprecated; set qosReserved in the file of --config",
		"--feature-gates=ProcMountType=true":                        "--feature-gates is deprecated; set featureGates in the file of --config|--feature-gates (featureGates): svclet does not act on ProcMountType",
		"--container-runtime-endpoint=/s":                           "",
		"--experimental-mounter-path=x":                             "--experimental-mounter-path is deprecated and has no effect: svclet mounts by itself",
		"--minimum-container-ttl-duration=1s":                       "--minimum-container-ttl-duration is deprecated",
	} {
		s, err := Load(append(strings.Fields(args), "--address=127.0.0.1"), noVariables)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		// The address keeps the server from being open to every client.
		got := slices.DeleteFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, "--address") })
		if strings.Join(got, "|") != want {
			t.Errorf("%s warns of %q, want %q", args, got, want)
		}
	}
}

func TestAServerWithoutAuthorizationIsWarnedOf(t *testing.T) {
	for args, want := range map[string]bool{
		"":                                  true,
		"--anonymous-auth=false":            false,
		"--address=127.0.0.1":               false,
		"--enable-server=false":             false,
		"--enable-debugging-handlers=false": false,
	} {
		s, err := Load(strings.Fields(args), noVariables)
		if err != nil {
			t.Fatal(err)
		}
		open := slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, "any client that reaches port") })
		if open != want {
			t.Errorf("%q: warned is %t, want %t", args, open, want)
		}
	}
}

func TestHelpFitsItsWidthAndHasEveryFlag(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHelp(&b, 80); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "        ") && len(line) > 81 {
			t.Errorf("too long: %s", line)
		}
	}
	for _, s := range All() {
		if there := strings.Contains(b.String(), "--"+s.Flag+" ") || strings.Contains(b.String(), "--"+s.Flag+"\n") || s.Flag == "v"; s.Flag != "" && !there {
			t.Errorf("--%s is not in the help", s.Flag)
		}
	}
}

func FuzzFilesAreReadOrRefused(f *testing.F) {
	for _, seed := range []string{
		head, head + "maxPods: 1", head + "registerWithTaints: [{key: a, effect: NoSchedule}]", "{\"kind\": \"" + Kind + "\"}",
		head + "a: &a [*a]", head + "<<: {maxPods: 1}", head + "authentication: {anonymous: {enabled: true}}", "%", "---\n---", head + "logging: {flushFrequency: 5s, vmodule: [{filePattern: a, verbosity: 1}]}",
		head + "evictionHard: {memory.available: 5%}", head + "tracing: {endpoint: x}\nmaxPods: 0x10", "? {}\n: 1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed := newFile("f")
		parsed.parse(data)
		for _, problem := range parsed.problems {
			if strings.Contains(problem, "\n") || !strings.HasPrefix(problem, "f:") {
				t.Errorf("a problem is not one line that names the file: %q", problem)
			}
		}
		if len(parsed.problems) > 0 {
			return
		}
		m := &merged{values: map[string]any{}, origins: map[string]string{}}
		m.add(parsed)
		m.apply(Default())
		if len(m.problems) > 0 {
			t.Errorf("what was taken cannot be applied: %q", m.problems)
		}
	})
}

func TestAFlagWithItsDefaultIsAcceptedWhateverWorksBehindIt(t *testing.T) {
	for _, flag := range []string{
		"--rotate-certificates=false", "--rotate-server-certificates=false", "--cpu-manager-policy=none", "--cpu-manager-policy-options=",
		"--cpu-manager-reconcile-period=10s", "--memory-manager-policy=None", "--topology-manager-policy=none", "--topology-manager-scope=container",
		"--reserved-memory=", "--volume-plugin-dir=/usr/libexec/svc/svclet-plugins/volume/exec/", "--topology-manager-policy-options=",
		"--eviction-hard=imagefs.available<15%,memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%", "--eviction-soft=",
		"--eviction-pressure-transition-period=5m0s", "--image-gc-high-threshold=85", "--image-gc-low-threshold=80", "--minimum-image-ttl-duration=2m0s",
	} {
		if found := problems(t, "--logging-format=text", flag); len(found) > 0 {
			t.Errorf("%s: %q", flag, found)
		}
	}
}
