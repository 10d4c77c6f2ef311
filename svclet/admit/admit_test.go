package admit

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func testNode(change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a", corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{Allocatable: list(
			"cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "pods", "3", "example.com/gpu", "1", "hugepages-2Mi", "4Mi")},
	}
	for _, f := range change {
		f(node)
	}
	return node
}

func testPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func requesting(pairs ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = list(pairs...) }
}

func guaranteed(pairs ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(pairs...), Limits: list(pairs...)}
	}
}

// claimed lets a pod have the GPUs of its container from a resource claim.
func claimed(claim string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim, RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"},
		}}
	}
}

func priority(value int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Priority = &value }
}

func static(pod *corev1.Pod) {
	pod.Annotations = map[string]string{SourceAnnotation: "file"}
}

func onPort(port int32, ip string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: port, HostIP: ip}}
	}
}

func withSysctls(hostNetwork, hostIPC bool, names ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.HostNetwork, pod.Spec.HostIPC = hostNetwork, hostIPC
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		for _, name := range names {
			pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: name, Value: "1"})
		}
	}
}

func TestAdmitByResources(t *testing.T) {
	testAdmit(t, []admitCase{
		{name: "a pod that asks for nothing", pod: testPod("p")},
		{name: "a node unknown yet", pod: testPod("p"), node: nil,
			reason: "InvalidNodeInfo", message: "Kubelet cannot get node info."},
		{name: "as many pods as the node takes", pod: testPod("p"), others: []*corev1.Pod{testPod("a"), testPod("b")}},
		{name: "more pods than the node takes", pod: testPod("p"), others: []*corev1.Pod{testPod("a"), testPod("b"), testPod("c")},
			reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{name: "the pod itself among the others", pod: testPod("p"), others: []*corev1.Pod{testPod("a"), testPod("b"), testPod("p")}},
		{name: "too little CPU, counted in thousandths", pod: testPod("p", requesting("cpu", "1500m")),
			others: []*corev1.Pod{testPod("a", requesting("cpu", "600m"))},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 1500, used: 600, capacity: 2000"},
		{name: "exactly what is left", pod: testPod("p", requesting("cpu", "1400m")),
			others: []*corev1.Pod{testPod("a", requesting("cpu", "600m"))}},
		{name: "too little memory", pod: testPod("p", requesting("memory", "2Gi")),
			reason: "OutOfmemory", message: "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824"},
		{name: "too little storage", pod: testPod("p", requesting("ephemeral-storage", "20Gi")),
			reason: "OutOfephemeral-storage", message: "Node didn't have enough resource: ephemeral-storage, requested: 21474836480, used: 0, capacity: 10737418240"},
		{name: "too few devices", pod: testPod("p", requesting("example.com/gpu", "1")), others: []*corev1.Pod{testPod("a", requesting("example.com/gpu", "1"))},
			reason: "OutOfexample.com/gpu", message: "Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1"},
		{name: "devices of a resource claim, not of a device plugin", pod: testPod("p", requesting("example.com/gpu", "3"), claimed("p")), options: Options{Claims: true},
			others: []*corev1.Pod{testPod("a", requesting("example.com/gpu", "1"))}},
		{name: "devices of a plugin beside those of claims", pod: testPod("p", requesting("example.com/gpu", "1")), options: Options{Claims: true},
			others: []*corev1.Pod{testPod("a", requesting("example.com/gpu", "1"), claimed("a"))}},
		{name: "an extended resource of the cluster's, not the node's", pod: testPod("p", requesting("example.com/licence", "5"))},
		{name: "too few huge pages", pod: testPod("p", requesting("hugepages-2Mi", "8Mi")),
			reason: "OutOfhugepages-2Mi", message: "Node didn't have enough resource: hugepages-2Mi, requested: 8388608, used: 0, capacity: 4194304"},
		{name: "CPU before memory", pod: testPod("p", requesting("memory", "2Gi", "cpu", "3")),
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{name: "overhead counts", pod: testPod("p", requesting("cpu", "1"), func(pod *corev1.Pod) { pod.Spec.Overhead = list("cpu", "1100m") }),
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 2100, used: 0, capacity: 2000"},
		{name: "the pod's own resources count", pod: testPod("p", func(pod *corev1.Pod) {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "3")}
		}), reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
	})
}

func TestAdmitByNodeAndPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	testAdmit(t, []admitCase{
		{name: "a node selector that matches", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "a"} })},
		{name: "a node selector that does not", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }),
			reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "an affinity that does not match", pod: testPod("p", func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}}}}}}}}
		}), reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "resources before affinity", pod: testPod("p", requesting("cpu", "3"), func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }),
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{name: "of a critical pod, affinity before resources", pod: testPod("p", static, requesting("cpu", "3"), func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }),
			reason: "NodeAffinity", message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{name: "another node's pod", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.NodeName = "n2" }),
			reason: "NodeName", message: "Predicate NodeName failed: node(s) didn't match the requested node name"},

		{name: "a port that is taken", pod: testPod("p", onPort(8080, "")), others: []*corev1.Pod{testPod("a", onPort(8080, "127.0.0.1"))},
			reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{name: "the same port of another address", pod: testPod("p", onPort(8080, "127.0.0.2")), others: []*corev1.Pod{testPod("a", onPort(8080, "127.0.0.1"))}},
		{name: "a port taken by a sidecar", pod: testPod("p", onPort(8080, "")), others: []*corev1.Pod{testPod("a", func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "i", RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 8080}}}}
		})}, reason: "NodePorts", message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
	})
}

func TestAdmitByTaints(t *testing.T) {
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: "gone", Effect: effect}} }
	}
	testAdmit(t, []admitCase{
		{name: "a taint that evicts", pod: testPod("p"), node: testNode(tainted(corev1.TaintEffectNoExecute)),
			reason: "TaintToleration", message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		{name: "a taint that evicts, and a static pod", pod: testPod("p", static), node: testNode(tainted(corev1.TaintEffectNoExecute))},
		{name: "a taint that is the scheduler's", pod: testPod("p"), node: testNode(tainted(corev1.TaintEffectNoSchedule))},
		{name: "a taint that is tolerated", node: testNode(tainted(corev1.TaintEffectNoExecute)),
			pod: testPod("p", func(pod *corev1.Pod) {
				pod.Spec.Tolerations = []corev1.Toleration{{Key: "gone", Operator: corev1.TolerationOpExists}}
			})},
	})
}

func TestAdmitByWhatTheNodeSupports(t *testing.T) {
	strict := corev1.SupplementalGroupsPolicyStrict
	appArmor := func(pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
	}
	testAdmit(t, []admitCase{
		{name: "another system's label", pod: testPod("p", func(pod *corev1.Pod) { pod.Labels = map[string]string{corev1.LabelOSStable: "windows"} }),
			reason: "PodOSSelectorNodeLabelDoesNotMatch", message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		{name: "another system", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }),
			reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS"},
		{name: "this system", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Linux} })},
		{name: "a strict policy of groups that the runtime cannot", pod: testPod("p", func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
		}), reason: "SupplementalGroupsPolicyNotSupported", message: "SupplementalGroupsPolicy=Strict is not supported in this node"},
		{name: "AppArmor on a host that has none", pod: testPod("p", appArmor),
			reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{name: "AppArmor on a host that has it", pod: testPod("p", appArmor), options: Options{AppArmor: true}},
		{name: "AppArmor of a pod that runs", pod: testPod("p", appArmor, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })},
		{name: "a sidecar", pod: testPod("p", sidecar)},
		{name: "a sidecar without the gate", pod: testPod("p", sidecar), options: Options{WithoutSidecars: true}, reason: "InitContainerRestartPolicyForbidden",
			message: `Init container "proxy" may not have a non-default restartPolicy: the feature gate SidecarContainers is off`},
		{name: "a feature that the agent does not have", pod: testPod("p", restartingAll),
			reason: "PodFeatureUnsupported", message: "Pod requires node features that are not available: RestartAllContainersOnContainerExits"},
		{name: "a feature that it has", pod: testPod("p", restartingAll), options: Options{Features: []string{"RestartAllContainersOnContainerExits"}}},
		{name: "one that it does not have any more", pod: testPod("p", restartingAll, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })},
		{name: "a resource claim", pod: testPod("p", func(pod *corev1.Pod) { pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }),
			reason: "UnexpectedAdmissionError", message: `resource claim "gpu": the feature gate DynamicResourceAllocation is off on this node`},
		{name: "a resource claim for extended resources", pod: testPod("p", claimed("gpu-claim")),
			reason: "UnexpectedAdmissionError", message: `resource claim "gpu-claim": the feature gate DynamicResourceAllocation is off on this node`},
		{name: "a resource claim with the gate", pod: testPod("p", claimed("gpu-claim")), options: Options{Claims: true}},
	})
}

func TestAdmitBySysctls(t *testing.T) {
	testAdmit(t, []admitCase{
		{name: "a safe sysctl", pod: testPod("p", withSysctls(false, false, "net/ipv4/tcp_syncookies", "kernel.shm_rmid_forced"))},
		{name: "an unsafe sysctl", pod: testPod("p", withSysctls(false, false, "kernel.msgmax")),
			reason: "SysctlForbidden", message: `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{name: "an unsafe sysctl that is allowed", pod: testPod("p", withSysctls(false, false, "net.core.somaxconn"))},
		{name: "a sysctl of a network that is the host's", pod: testPod("p", withSysctls(true, false, "net.core.somaxconn")),
			reason: "SysctlForbidden", message: `forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled`},
		{name: "a sysctl of memory that is the host's", pod: testPod("p", withSysctls(false, true, "kernel.shm_rmid_forced")),
			reason: "SysctlForbidden", message: `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`},
	})
}

// admitCase is a pod and its refusal; both empty if it is admitted. Without a node it is
// that of testNode, unless the reason says that there is none.
type admitCase struct {
	name            string
	pod             *corev1.Pod
	others          []*corev1.Pod
	node            *corev1.Node
	options         Options
	reason, message string
}

func testAdmit(t *testing.T, cases []admitCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			sysctls, err := NewSysctls([]string{"net.core.*"}, "6.1.0-13-amd64")
			if err != nil {
				t.Fatal(err)
			}
			test.options.Sysctls, test.options.OS = sysctls, "linux"
			node := test.node
			if node == nil && test.reason != "InvalidNodeInfo" {
				node = testNode()
			}
			refusal := Admit(test.pod, test.others, node, test.options)
			if refusal == nil {
				refusal = &Refusal{}
			}
			if refusal.Reason != test.reason || refusal.Message != test.message {
				t.Errorf("refused for %q: %q, want %q: %q", refusal.Reason, refusal.Message, test.reason, test.message)
			}
		})
	}
}

func TestACriticalPodsRefusalHasItsShortages(t *testing.T) {
	others := []*corev1.Pod{testPod("a", requesting("cpu", "1500m", "memory", "512Mi"))}
	asking := requesting("cpu", "1", "memory", "768Mi")

	refusal := Admit(testPod("p", asking, priority(systemCriticalPriority)), others, testNode(), Options{OS: "linux"})
	if refusal == nil || len(refusal.Shortages) != 2 {
		t.Fatalf("refusal %+v, want one with two shortages", refusal)
	}
	if got := refusal.Shortages[0].Missing(); got != 500 {
		t.Errorf("missing %d thousandths of a CPU, want 500", got)
	}
	if got := refusal.Shortages[1].Missing(); got != 256<<20 {
		t.Errorf("missing %d bytes of memory, want 256 MiB", got)
	}
	refusal = Admit(testPod("p", asking), others, testNode(), Options{OS: "linux"})
	if refusal == nil || refusal.Shortages != nil {
		t.Errorf("refusal %+v of an ordinary pod, want one without shortages", refusal)
	}
}

func TestVictims(t *testing.T) {
	bestEffort := func(name string) *corev1.Pod { return testPod(name) }
	burstable := func(name, memory string) *corev1.Pod { return testPod(name, requesting("memory", memory)) }
	sure := func(name, memory string) *corev1.Pod { return testPod(name, guaranteed("cpu", "1m", "memory", memory)) }
	memory := func(amount int64) []Shortage {
		return []Shortage{{Resource: corev1.ResourceMemory, Requested: amount, Used: 1 << 30, Capacity: 1 << 30}}
	}
	for _, test := range []struct {
		name      string
		critical  *corev1.Pod
		others    []*corev1.Pod
		shortages []Shortage
		want      []string
		err       string
	}{
		{name: "the smallest that is enough", others: []*corev1.Pod{burstable("big", "900Mi"), burstable("fit", "300Mi"), burstable("small", "100Mi")},
			shortages: memory(200 << 20), want: []string{"fit"}},
		{name: "few rather than many", others: []*corev1.Pod{burstable("a", "100Mi"), burstable("b", "100Mi"), burstable("c", "250Mi")},
			shortages: memory(300 << 20), want: []string{"c", "a"}},
		{name: "burstable before guaranteed", others: []*corev1.Pod{sure("g", "300Mi"), burstable("b", "400Mi")},
			shortages: memory(200 << 20), want: []string{"b"}},
		{name: "guaranteed when the others are not enough", others: []*corev1.Pod{sure("g", "300Mi"), burstable("b", "100Mi")},
			shortages: memory(350 << 20), want: []string{"b", "g"}},
		{name: "only guaranteed when it makes the others needless", others: []*corev1.Pod{sure("g", "600Mi"), burstable("b", "100Mi")},
			shortages: memory(500 << 20), want: []string{"g"}},
		{name: "a best-effort pod when there are too many", others: []*corev1.Pod{burstable("b", "1Mi"), bestEffort("e"), sure("g", "1Mi")},
			shortages: []Shortage{{Resource: corev1.ResourcePods, Requested: 1, Used: 3, Capacity: 3}}, want: []string{"e"}},
		{name: "no critical pod", others: []*corev1.Pod{testPod("a", static, requesting("memory", "900Mi"))}, shortages: memory(200 << 20),
			err: "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: memory, q: 209715200), ]"},
		{name: "a critical pod of less priority", critical: testPod("p", priority(systemCriticalPriority+1000)),
			others:    []*corev1.Pod{testPod("a", priority(systemCriticalPriority), requesting("memory", "900Mi"))},
			shortages: memory(200 << 20), want: []string{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			critical := test.critical
			if critical == nil {
				critical = testPod("critical", static)
			}
			victims, err := Victims(critical, test.others, test.shortages)
			if test.err != "" || err != nil {
				if err == nil || err.Error() != test.err {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				refusal := NoVictims(err)
				if want := "Unexpected error while attempting to recover from admission failure: " + test.err; refusal.Message != want {
					t.Errorf("message %q, want %q", refusal.Message, want)
				}
				return
			}
			var names []string
			for _, victim := range victims {
				names = append(names, victim.Name)
			}
			if !slices.Equal(names, test.want) {
				t.Errorf("victims %v, want %v", names, test.want)
			}
		})
	}
}

func TestUnsafeSysctlsMustBeNamespaced(t *testing.T) {
	for pattern, want := range map[string]string{
		"net.*":              "",
		"kernel.shm*":        "",
		"kernel.sem":         "",
		"net/ipv4/tcp_tw":    "",
		"fs.mqueue.msg_max":  "",
		"vm.swappiness":      `the sysctls "vm.swappiness" are not known to be namespaced`,
		"*":                  `the sysctls "" are not known to be namespaced`,
		"NET.core":           `sysctl "NET.core" must have at most 253 characters`,
		"net.*.x":            `sysctl "net.*.x" must have at most 253 characters`,
		"kernel.sem; rm -rf": `must have at most 253 characters`,
	} {
		_, err := NewSysctls([]string{pattern}, "6.1")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", pattern, err, want)
		}
	}
}

func TestSafeSysctlsDependOnTheKernel(t *testing.T) {
	for kernel, want := range map[string]bool{"3.10": false, "4.14.0-1": false, "4.15": true, "6.12.1+deb13": true, "rolling": false} {
		sysctls, err := NewSysctls(nil, kernel)
		if err != nil {
			t.Fatal(err)
		}
		if got := sysctls.allow("net.ipv4.tcp_rmem", false, false) == nil; got != want {
			t.Errorf("tcp_rmem on %s allowed: %v, want %v", kernel, got, want)
		}
		if err := sysctls.allow("net.ipv4.tcp_syncookies", false, false); err != nil {
			t.Errorf("tcp_syncookies on %s: %v", kernel, err)
		}
	}
}

func FuzzSysctls(f *testing.F) {
	f.Add("net.core.*", "net.core.somaxconn")
	f.Add("kernel.shm*", "kernel/shmmax")
	f.Add("*", "kernel.panic")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		sysctls, err := NewSysctls([]string{pattern}, "6.1")
		if err != nil {
			return
		}
		// No allowed sysctl changes the whole machine.
		for _, forbidden := range []string{"vm.swappiness", "kernel.panic", "kernel.core_pattern", "fs.file-max"} {
			if sysctls.allow(forbidden, false, false) == nil {
				t.Errorf("%q allows %s", pattern, forbidden)
			}
		}
		if sysctls.allow(name, true, true) == nil {
			if namespace, _ := sysctls.namespace(name); namespace == "Net" || namespace == "IPC" {
				t.Errorf("%q allows %s in the host's %s namespace", pattern, name, namespace)
			}
		}
	})
}

func restartingAll(pod *corev1.Pod) {
	pod.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
}

func sidecar(pod *corev1.Pod) {
	pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
}
