package container

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/cgroup"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestMounts(t *testing.T) {
	enabled, ifPossible := corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible
	toContainer, odd := corev1.MountPropagationHostToContainer, corev1.MountPropagationMode("Odd")
	image := &runtimeapi.ImageSpec{Image: "sha256:1"}
	volumes := map[string]Volume{
		"v": {HostPath: "/v", SELinuxRelabel: true}, "ro": {HostPath: "/ro", ReadOnly: true}, "image": {Image: image},
		"empty": {},
	}
	for _, test := range []struct {
		name     string
		mount    corev1.VolumeMount
		possible bool
		want     string
		err      string
	}{
		{name: "a volume", mount: corev1.VolumeMount{Name: "v", MountPath: "/m"}, want: "/v:/m"},
		{name: "a relative path", mount: corev1.VolumeMount{Name: "v", MountPath: "m"}, want: "/v:/m"},
		{name: "read-only by its mount", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true}, want: "/v:/m ro"},
		{name: "read-only by itself", mount: corev1.VolumeMount{Name: "ro", MountPath: "/m"}, want: "/ro:/m ro"},
		{name: "a path within", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPath: "a/b"}, want: "/sub/v/a/b:/m"},
		{name: "a path of variables", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPathExpr: "$(A)/b"}, want: "/sub/v/x/b:/m"},
		{name: "a path of a variable that is not there", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPathExpr: "$(B)/b"}, err: "missing value for B"},
		{name: "an absolute path within", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPath: "/a"}, err: "error SubPath `/a` must not be an absolute path"},
		{name: "a path that steps back", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPath: "a/../../b"}, err: "unable to provision SubPath `a/../../b`: must not contain '..'"},
		{name: "a path that steps back by a variable", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPathExpr: "$(UP)"}, err: "unable to provision SubPath `..`: must not contain '..'"},
		{name: "a path that cannot be made", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", SubPath: "fail"}, err: "failed to prepare subPath"},
		{name: "an image", mount: corev1.VolumeMount{Name: "image", MountPath: "/m", SubPath: "a"}, want: "sha256:1/a:/m"},
		{name: "no volume", mount: corev1.VolumeMount{Name: "none", MountPath: "/m"}, err: `cannot find volume "none" to mount into container "main"`},
		{name: "a volume that is nowhere", mount: corev1.VolumeMount{Name: "empty", MountPath: "/m"}, err: `cannot find volume "empty" to mount into container "main"`},
		{name: "no propagation", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", MountPropagation: &odd}, err: `invalid MountPropagation mode: "Odd"`},
		{name: "all read-only", possible: true, mount: corev1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: &enabled}, want: "/v:/m ro rro"},
		{name: "all read-only if possible", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: &ifPossible}, want: "/v:/m ro"},
		{name: "all read-only, not possible", mount: corev1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: &enabled},
			err: `failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not supported by the runtime`},
		{name: "all read-only but itself", possible: true, mount: corev1.VolumeMount{Name: "v", MountPath: "/m", RecursiveReadOnly: &enabled},
			err: `failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not read-only`},
		{name: "all read-only, and what comes later", possible: true, mount: corev1.VolumeMount{Name: "v", MountPath: "/m", ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &toContainer},
			err: `failed to resolve recursive read-only mode: volume "v" requested recursive read-only mode, but it is not compatible with propagation "HostToContainer"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "x"}, {Name: "UP", Value: ".."}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{test.mount}
			in := testInput(pod, &pod.Spec.Containers[0], nil)
			in.Volumes, in.RecursiveReadOnly = volumes, test.possible
			in.SubPath = func(mount corev1.VolumeMount, subPath string) (string, error) {
				if subPath == "fail" {
					return "", errors.New("failed to prepare subPath")
				}
				return "/sub/" + mount.Name + "/" + subPath, nil
			}
			config, err := Config(t.Context(), in)
			if test.err != "" || err != nil {
				if err == nil || err.Error() != test.err {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			mount := config.Mounts[0]
			got := mount.HostPath + ":" + mount.ContainerPath
			if mount.Image != nil {
				got = mount.Image.Image + "/" + mount.ImageSubPath + got
			}
			if mount.Readonly {
				got += " ro"
			}
			if mount.RecursiveReadOnly {
				got += " rro"
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestBlockVolumesAreDevices(t *testing.T) {
	pod := testPod()
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/x"}}
	_, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], nil))
	if want := `cannot find volume "disk" to pass into container "main"`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for readOnly, want := range map[bool]string{false: "mrw", true: "r"} {
		in := testInput(pod, &pod.Spec.Containers[0], nil)
		in.Volumes = map[string]Volume{"disk": {Device: "/dev/loop0", ReadOnly: readOnly}}
		config, err := Config(t.Context(), in)
		if err != nil || len(config.Devices) != 1 {
			t.Fatalf("%v, %v", config, err)
		}
		if d := config.Devices[0]; d.HostPath != "/dev/loop0" || d.ContainerPath != "/dev/x" || d.Permissions != want {
			t.Errorf("read-only %t: %v", readOnly, d)
		}
	}
}

func TestTheRuntimeGetsTheStopSignal(t *testing.T) {
	pod := testPod()
	for want, lifecycle := range map[runtimeapi.Signal]*corev1.Lifecycle{
		runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT: {}, runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3: {StopSignal: new(corev1.SIGRTMINPLUS3)},
	} {
		pod.Spec.Containers[0].Lifecycle = lifecycle
		config, err := Config(t.Context(), testInput(pod, &pod.Spec.Containers[0], nil))
		if err != nil || config.StopSignal != want {
			t.Errorf("%v, %v, want %s", config.GetStopSignal(), err, want)
		}
	}
}

func TestTheHostsFileIsMountedOnlyIfThePodHasAnAddress(t *testing.T) {
	for _, test := range []struct {
		name        string
		ips         []string
		hostNetwork bool
		want        bool
	}{
		{"an address", []string{"10.0.0.1"}, false, true},
		{"no address yet", nil, false, false},
		{"the node's network", nil, true, true},
	} {
		pod := testPod()
		pod.Spec.HostNetwork = test.hostNetwork
		in := testInput(pod, &pod.Spec.Containers[0], nil)
		in.PodIPs = test.ips
		config, err := Config(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(config.Mounts) > 0; got != test.want {
			t.Errorf("%s: mounted %v, want %v", test.name, got, test.want)
		}
	}
}

func TestAHostNetworkPodHasTheNodesAddresses(t *testing.T) {
	pod := testPod()
	pod.Spec.HostNetwork = true
	in := testInput(pod, &pod.Spec.Containers[0], nil)
	in.PodIPs = nil
	if got := strings.Join(in.addresses().PodIPs, " "); got != "192.0.2.1 2001:db8::1" {
		t.Errorf("addresses %q", got)
	}
}

// exclusive are the containers of a pod that have exclusive CPUs.
type exclusive []string

func (e exclusive) HasExclusiveCPUs(pod types.UID, container string) bool {
	return e.PodHasExclusiveCPUs(pod) && slices.Contains(e, container)
}

func (e exclusive) PodHasExclusiveCPUs(pod types.UID) bool { return pod == "u-1" && len(e) > 0 }

func TestASandboxIsNotLimitedIfAContainerHasExclusiveCPUs(t *testing.T) {
	pod := testPod()
	pod.Spec.Containers[0].Resources.Limits = list("cpu", "2")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sharing", Resources: corev1.ResourceRequirements{Limits: list("cpu", "1")}})
	pod.Spec.Overhead = list("cpu", "1")
	o := testOptions()
	for _, test := range []struct {
		exclusive ExclusiveCPUs
		want      int64
	}{{nil, 300000}, {exclusive{}, 300000}, {exclusive{"main"}, -1}} {
		o.ExclusiveCPUs = test.exclusive
		if got := sandboxResources(o, pod).CpuQuota; got != test.want {
			t.Errorf("%v: quota %d, want %d", test.exclusive, got, test.want)
		}
		if got := overhead(o, pod).CpuQuota; got != 100000 {
			t.Errorf("%v: quota of the overhead %d", test.exclusive, got)
		}
	}
	o.CPUCFSQuota = false
	if got := sandboxResources(o, pod).CpuQuota; got != 0 {
		t.Errorf("quotas off: %d", got)
	}
}

func TestResources(t *testing.T) {
	for _, test := range []struct {
		name             string
		requests, limits corev1.ResourceList
		change           func(*Options)
		want             *runtimeapi.LinuxContainerResources
	}{
		{name: "nothing", want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		{name: "the limit of the CPU stands for its request", limits: list("cpu", "2"),
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuQuota: 200000, CpuPeriod: 100000, OomScoreAdj: 999}},
		{name: "quotas off", requests: list("cpu", "1"), limits: list("cpu", "2"), change: func(o *Options) { o.CPUCFSQuota = false },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 1024, OomScoreAdj: 999}},
		{name: "exclusive CPUs are not limited", limits: list("cpu", "2"), change: func(o *Options) { o.ExclusiveCPUs = exclusive{"main"} },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuQuota: -1, CpuPeriod: 100000, OomScoreAdj: 999}},
		{name: "another container's exclusive CPUs", limits: list("cpu", "2"), change: func(o *Options) { o.ExclusiveCPUs = exclusive{"other"} },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuQuota: 200000, CpuPeriod: 100000, OomScoreAdj: 999}},
		{name: "a shorter period", limits: list("cpu", "2"), change: func(o *Options) { o.CPUCFSQuotaPeriod = 5 * time.Millisecond },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuQuota: 10000, CpuPeriod: 5000, OomScoreAdj: 999}},
		{name: "cgroup v2 kills all of a container", change: func(o *Options) { o.Host.CgroupV2 = true },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000, Unified: map[string]string{"memory.oom.group": "1"}}},
		{name: "cgroup v2 kills one process", change: func(o *Options) { o.Host.CgroupV2, o.SingleProcessOOMKill = true, true },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		{name: "no swap, cgroup v1", limits: list("memory", "64Mi"), change: func(o *Options) { o.Host.SwapController = true },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20, OomScoreAdj: 999}},
		{name: "no swap, cgroup v2", requests: list("memory", "4Gi"), change: func(o *Options) { o.Host.CgroupV2, o.Host.SwapController = true, true },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 500, Unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}}},
		{name: "memory protected and throttled", requests: list("memory", "1Gi"), limits: list("memory", "2Gi"), change: func(o *Options) {
			o.Host.CgroupV2, o.SingleProcessOOMKill, o.Protection, o.ThrottlingFactor = true, true, cgroup.ProtectAll, 0.9
		}, want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, MemoryLimitInBytes: 2 << 30, OomScoreAdj: 875,
			Unified: map[string]string{"memory.min": "1073741824", "memory.low": "0", "memory.high": "2040107008"}}},
		{name: "throttled before allocatable", requests: list("memory", "1Gi"), change: func(o *Options) {
			o.Host.CgroupV2, o.SingleProcessOOMKill, o.Protection, o.ThrottlingFactor = true, true, cgroup.ProtectTiered, 0.5
			o.Allocatable = list("memory", "3Gi")
		}, want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 875,
			Unified: map[string]string{"memory.min": "0", "memory.low": "1073741824", "memory.high": "2147483648"}}},
		{name: "the guaranteed protected, not throttled", requests: list("memory", "4Gi", "cpu", "1"), limits: list("memory", "4Gi", "cpu", "1"), change: func(o *Options) {
			o.Host.CgroupV2, o.SingleProcessOOMKill, o.Protection, o.ThrottlingFactor = true, true, cgroup.ProtectTiered, 0.9
		}, want: &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100000, CpuQuota: 100000, MemoryLimitInBytes: 4 << 30, OomScoreAdj: -997,
			Unified: map[string]string{"memory.min": "4294967296", "memory.low": "0"}}},
		{name: "no protection on cgroup v1", requests: list("memory", "4Gi"), change: func(o *Options) { o.Protection, o.ThrottlingFactor = cgroup.ProtectAll, 0.9 },
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 500}},
		{name: "swap in proportion", requests: list("memory", "4Gi"), change: func(o *Options) {
			o.Host.CgroupV2, o.Host.SwapController, o.Host.SwapCapacity, o.LimitedSwap = true, true, 1<<30, true
		}, want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 500, Unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "536870912"}}},
		{name: "no swap for the guaranteed", requests: list("memory", "4Gi", "cpu", "1"), limits: list("memory", "4Gi", "cpu", "1"), change: func(o *Options) {
			o.Host.CgroupV2, o.Host.SwapController, o.Host.SwapCapacity, o.LimitedSwap = true, true, 1<<30, true
		}, want: &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 4 << 30, OomScoreAdj: -997,
			Unified: map[string]string{"memory.oom.group": "1", "memory.swap.max": "0"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := testOptions()
			o.Host.HugepageSizes = nil
			if test.change != nil {
				test.change(&o)
			}
			pod := testPod()
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: test.requests, Limits: test.limits}
			got := Resources(o, pod, &pod.Spec.Containers[0])
			if got.String() != test.want.String() {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestOOMScoreAdjust(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	memory := func(requests ...string) *corev1.Pod {
		pod := testPod()
		pod.Spec.Containers = nil
		for _, request := range requests {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list("memory", request)}})
		}
		return pod
	}
	sidecar := memory("4Gi", "2Gi")
	sidecar.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("memory", "1Gi")}}}
	shared := memory("1Gi", "1Gi")
	shared.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "4Gi")}
	sharing := memory("1Gi", "1Gi")
	sharing.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "6Gi")}
	sharing.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("memory", "1Gi")}}}
	nodeCritical := testPod()
	nodeCritical.Spec.Priority, nodeCritical.Spec.PriorityClassName = ptr.To[int32](2_000_001_000), "system-node-critical"
	named := testPod()
	named.Spec.PriorityClassName = "system-node-critical"
	for _, test := range []struct {
		name      string
		pod       *corev1.Pod
		container *corev1.Container
		want      int64
	}{
		{name: "best effort", pod: testPod(), want: 1000},
		{name: "critical for the node", pod: nodeCritical, want: -997},
		{name: "critical by name only", pod: named, want: 1000},
		{name: "half of the memory", pod: memory("4Gi"), want: 500},
		{name: "all of the memory", pod: memory("8Gi"), want: 3},
		{name: "more than all", pod: memory("80Gi"), want: 3},
		{name: "next to nothing", pod: memory("1Ki"), want: 999},
		{name: "a sidecar as its containers", pod: sidecar, container: &sidecar.Spec.InitContainers[0], want: 750},
		{name: "a share of what the pod has besides", pod: shared, want: 750},
		{name: "a sidecar's share of it", pod: sharing, container: &sharing.Spec.InitContainers[0], want: 750},
	} {
		container := test.container
		if container == nil {
			container = &test.pod.Spec.Containers[0]
		}
		if got := oomScoreAdjust(test.pod, container, 8<<30); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
