package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/nodeconfig"
)

var _ = Describe("a security context", func() {
	DescribeTable("sets the user and privileges of a container", func(ctx SpecContext, pod, container, line, want string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: bound}
spec:
  restartPolicy: Never
  securityContext: {`+pod+`}
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c]
    args:
    - |
      exec 2>&1
      `+line+`
    securityContext: {`+container+`}
    volumeMounts: [{name: work, mountPath: /work}]
  volumes: [{name: work, emptyDir: {}}]
`)
		s.await(ctx, "bound", Or(inPhase(corev1.PodSucceeded), inPhase(corev1.PodFailed)))
		Expect(s.run(ctx, "logs", "bound")).To(MatchRegexp(want))
	},
		Entry("by user and groups", "runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [3000]", "", "id -u; id -G", "^1000\n2000 3000\n$"),
		Entry("by the container's user rather than the pod's", "runAsUser: 1000", "runAsUser: 1001, runAsGroup: 5", "id -u; id -g", "^1001\n5\n$"),
		Entry("by fsGroup", "runAsUser: 1000, fsGroup: 4000", "", "touch /work/file; stat -c '%g %a' /work /work/file; id -G", "^4000 2777\n4000 644\n0 4000\n$"),
		Entry("read-only root", "", "readOnlyRootFilesystem: true", "touch /file; touch /work/file && echo fine", "Read-only file system\nfine\n$"),
		Entry("without capabilities", "", "capabilities: {drop: [ALL]}", "grep CapEff /proc/self/status", `CapEff:\t0000000000000000\n`),
		Entry("with one more capability", "", "capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}", "grep CapEff /proc/self/status", `CapEff:\t0000000000000400\n`),
		Entry("by seccomp's profile of the runtime", "seccompProfile: {type: RuntimeDefault}", "", "grep Seccomp: /proc/self/status", `Seccomp:\t2\n`),
		Entry("without seccomp", "seccompProfile: {type: Unconfined}", "", "grep Seccomp: /proc/self/status", `Seccomp:\t0\n`),
		Entry("without new privileges", "", "allowPrivilegeEscalation: false", "grep NoNewPrivs /proc/self/status", `NoNewPrivs:\t1\n`),
		Entry("by a sysctl", `sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "123"}]`, "", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "^123\n$"),
		Entry("masked", "", "", "cat /proc/timer_list | wc -c; mount -t tmpfs none /work", "^0\n.*(not permitted|denied)"),
		Entry("privileged", "", "privileged: true", "mount -t tmpfs none /work && mkdir /sys/fs/cgroup/memory/x 2>/dev/null; grep -c . /dev/null; ls -d /dev/kmsg", "/dev/kmsg\n$"),
	)
})

var _ = Describe("namespaces", func() {
	It("are the pod's own, shared between containers, or the node's", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, strings.Join([]string{
			sleeper("own", ""), sleeper("shared", "shareProcessNamespace: true"), sleeper("node", "hostPID: true, hostIPC: true, hostNetwork: true"),
		}, "\n---\n"))
		of := func(pod, kind string) string { return s.exec(ctx, pod, "readlink /proc/self/ns/"+kind) }
		for _, pod := range []string{"own", "shared", "node"} {
			s.await(ctx, pod, beReady())
		}
		for _, kind := range []string{"pid", "ipc", "net", "uts"} {
			host, err := os.Readlink("/proc/self/ns/" + kind)
			Expect(err).NotTo(HaveOccurred())
			Expect(of("own", kind)).NotTo(Equal(host + "\n"))
			Expect(of("node", kind)).To(Equal(host+"\n"), kind)
			Expect(of("shared", kind)).NotTo(Or(Equal(host+"\n"), Equal(of("own", kind))))
		}
		Expect(s.exec(ctx, "own", "tr '\\0' ' ' < /proc/1/cmdline")).To(Equal("sleep 1000 "))
		shared := s.exec(ctx, "shared", "ps")
		Expect(shared).To(And(MatchRegexp(` 1 .*/pause\n`), ContainSubstring("sleep 1000")))
		Expect(s.exec(ctx, "node", "tr '\\0' '\\n' < /proc/"+strconv.Itoa(node.Pid())+"/cmdline | tail -1")).NotTo(BeEmpty())
	})
})

var _ = Describe("a user namespace of the pod", func() {
	It("has other users than the node, or the pod says what is missing", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, sleeper("mapped", "hostUsers: false"))
		var n corev1.Node
		Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName()}, &n)).To(Succeed())
		if !nodeconfig.UserNamespaces(&n, "") {
			Eventually(s.events(ctx, "mapped")).Should(ContainElement(And(
				HavePrefix("FailedCreatePodSandBox: "), ContainSubstring("can't set `spec.hostUsers: false`, runtime does not support user namespaces"))))
			return
		}
		s.await(ctx, "mapped", beReady())
		Expect(s.exec(ctx, "mapped", "id -u; cat /proc/self/uid_map")).To(MatchRegexp(`^0\n +0 +\d*[1-9]\d{4,} +65536\n$`))
	})
})

// sleeper returns an idle pod.
func sleeper(name, spec string) string {
	if spec != "" {
		spec += ", "
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {%s terminationGracePeriodSeconds: 0, containers: [{name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"]}]}`, name, spec)
}

var _ = Describe("resources", func() {
	It("bound the cgroups of containers, pods and classes of pods", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: burstable}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    resources: {requests: {cpu: 250m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
  - name: other
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    resources: {requests: {cpu: 100m}, limits: {cpu: 100m, memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"], resources: {limits: {cpu: 100m, memory: 32Mi}}}
---
`+sleeper("besteffort", ""))
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			Skip("the files are those of cgroup v1")
		}
		root := "/" + node.Bridge + "/kubepods"
		for pod, where := range map[string]string{"burstable": root + "/burstable", "guaranteed": root, "besteffort": root + "/besteffort"} {
			p := s.await(ctx, pod, beReady())
			Expect(strings.ToLower(string(p.Status.QOSClass))).To(Equal(pod))
			Expect(s.run(ctx, "exec", pod, "--container=main", "--", "cat", "/proc/self/cgroup")).To(Or(
				ContainSubstring(":memory:/\n"), ContainSubstring(":memory:"+where+"/pod"+string(p.UID)+"/")))
			_, err := os.Stat("/sys/fs/cgroup/memory" + where + "/pod" + string(p.UID))
			Expect(err).NotTo(HaveOccurred())
		}
		p := s.await(ctx, "burstable", beReady())
		of := filepath.Join(root, "burstable", "pod"+string(p.UID))
		c, err := containerOf(p, "main")
		Expect(err).NotTo(HaveOccurred())
		_, id, _ := strings.Cut(c.ContainerID, "://")
		for file, want := range map[string]string{
			"cpu" + of + "/cpu.shares":                          fmt.Sprint(350 * 1024 / 1000),
			"cpu" + of + "/cpu.cfs_quota_us":                    "60000",
			"memory" + of + "/memory.limit_in_bytes":            fmt.Sprint(96 << 20),
			"cpu" + of + "/" + id + "/cpu.shares":               "256",
			"cpu" + of + "/" + id + "/cpu.cfs_quota_us":         "50000",
			"memory" + of + "/" + id + "/memory.limit_in_bytes": fmt.Sprint(64 << 20),
			"cpu" + root + "/besteffort/cpu.shares":             "2",
		} {
			content, err := os.ReadFile("/sys/fs/cgroup/" + file)
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.TrimSpace(string(content))).To(Equal(want), file)
		}

		By("which go with the pod")
		s.run(ctx, "delete", "pod", "burstable")
		Eventually("/sys/fs/cgroup/memory" + of).ShouldNot(BeADirectory())
	})
})
