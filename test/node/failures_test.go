package node

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("a container", func() {
	It("that exceeds its memory limit is killed, with the reason OOMKilled", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/server:1
    resources: {limits: {memory: 48Mi}}
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
`)
		p := s.await(ctx, "greedy", beReady())
		Expect(tryPost(ctx, "http://"+p.Status.PodIP+":8080/hog?mib=100")).NotTo(Succeed())
		s.await(ctx, "greedy", And(beReady(), container("main", And(restarted(1), terminatedBefore("OOMKilled", 137)))))
		Expect(s.run(ctx, "describe", "pod", "greedy")).To(MatchRegexp(`Last State: +Terminated\n +Reason: +OOMKilled\n +Exit Code: +137\n`))
	})

	It("that keeps exiting backs off, longer each time", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: crasher}
spec:
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo gone; exit 2']}
`)
		putOff := func(restarts int32, pause string) gomegatypes.GomegaMatcher {
			return And(inPhase(corev1.PodRunning), beUnready(), container("main", And(
				waiting("CrashLoopBackOff"), HaveField("RestartCount", restarts), terminatedBefore("Error", 2),
				HaveField("State.Waiting.Message", HavePrefix("back-off "+pause+" restarting failed container=main pod=crasher_"+s.name+"(")))))
		}
		s.see(ctx, "crasher", putOff(1, "10s"), putOff(2, "20s"))
		Eventually(func() (string, error) { return s.try(ctx, "get", "pod", "crasher") }).Should(MatchRegexp(`0/1 +CrashLoopBackOff +\d+ \(\S+ ago\)`))
		Eventually(func() (string, error) { return s.try(ctx, "logs", "crasher") }).Should(Equal("gone\n"))
		Eventually(s.events(ctx, "crasher")).Should(ContainElement(HavePrefix("BackOff: Back-off restarting failed container main in pod crasher_")))
	})

	DescribeTable("that cannot start reports why", func(ctx SpecContext, manifest, reason, message string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: unable}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - `+manifest+`
  - {name: other, image: "localhost/svc/server:1"}
`)
		s.await(ctx, "unable", And(container("main", waiting(reason)), container("other", running())))
		Eventually(func() (string, error) { return s.try(ctx, "describe", "pod", "unable") }).Should(MatchRegexp(message))
	},
		Entry("without its executable", `{name: main, image: "localhost/svc/busybox:1", command: [nothing-there]}`,
			"CrashLoopBackOff", `exec: "nothing-there": executable file not found in \$PATH`),
		Entry("without its image", `{name: main, image: "localhost/svc/nothing:1", imagePullPolicy: Never}`,
			"ErrImageNeverPull", `Warning +ErrImageNeverPull .*Container image "localhost/svc/nothing:1" is not present with pull policy of Never`),
		Entry("without a registry", `{name: main, image: "127.0.0.1:9/nothing:1"}`,
			"ImagePullBackOff", `Warning +Failed .*Failed to pull image "127.0.0.1:9/nothing:1": .*connection refused`),
		Entry("with an invalid image name", `{name: main, image: "localhost/Svc:1"}`,
			"InvalidImageName", `Warning +InspectFailed .*Failed to apply default image tag "localhost/Svc:1": couldn't parse image name`),
		Entry("without the user", `{name: main, image: "localhost/svc/busybox:1", securityContext: {runAsNonRoot: true}}`,
			"CreateContainerConfigError", `container has runAsNonRoot and image will run as root`),
		Entry("without the working directory", `{name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"], workingDir: /etc/passwd}`,
			"CrashLoopBackOff", `not a directory`),
	)
})

var _ = Describe("a pod that the node refuses", func() {
	DescribeTable("reports why", func(ctx SpecContext, spec, reason, message string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: refused}
spec:
  nodeName: `+nodeName()+`
`+spec)
		p := s.await(ctx, "refused", And(inPhase(corev1.PodFailed), HaveField("Status.Reason", reason)))
		Expect(p.Status.Message).To(MatchRegexp("^Pod was rejected: " + message + "$"))
		Eventually(func() (string, error) { return s.try(ctx, "describe", "pod", "refused") }).Should(And(
			MatchRegexp(`Status: +Failed\nReason: +`+reason+`\n`), MatchRegexp(`Warning +`+reason+` .*svclet +`+message)))
		Expect(s.run(ctx, "get", "pod", "refused")).To(ContainSubstring(reason))
	},
		Entry("for too little CPU", `
  containers: [{name: main, image: "localhost/svc/server:1", resources: {requests: {cpu: "1000"}}}]`,
			"OutOfcpu", `Node didn't have enough resource: cpu, requested: 1000000, used: \d+, capacity: \d+`),
		Entry("for too little memory", `
  containers: [{name: main, image: "localhost/svc/server:1", resources: {requests: {memory: 1000Gi}}}]`,
			"OutOfmemory", `Node didn't have enough resource: memory, requested: \d+, used: \d+, capacity: \d+`),
		Entry("for a missing label", `
  nodeSelector: {color: green}
  containers: [{name: main, image: "localhost/svc/server:1"}]`,
			"NodeAffinity", `Predicate NodeAffinity failed: node\(s\) didn't match Pod's node affinity/selector`),
		Entry("for a sysctl that is not allowed", `
  securityContext: {sysctls: [{name: kernel.msgmax, value: "65536"}]}
  containers: [{name: main, image: "localhost/svc/server:1"}]`,
			"SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`),
		Entry("for its operating system", `
  os: {name: windows}
  containers: [{name: main, image: "localhost/svc/server:1"}]`,
			"PodOSNotSupported", `Failed to admit pod as the OS field doesn't match node OS`),
	)
})
