package node

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

var _ = Describe("a pod's life", func() {
	It("runs its init containers one after the other, and completes", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: batch/v1
kind: Job
metadata: {name: build}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      initContainers:
      - {name: one, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo one >> /work/log'], volumeMounts: [{name: work, mountPath: /work}]}
      - {name: two, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo two >> /work/log'], volumeMounts: [{name: work, mountPath: /work}]}
      containers:
      - {name: main, image: "localhost/svc/busybox:1", command: [sh, -c, 'cat /work/log; echo three'], volumeMounts: [{name: work, mountPath: /work}]}
      volumes: [{name: work, emptyDir: {}}]
`)
		s.run(ctx, "wait", "job/build", "--for=condition=Complete", "--timeout=3m")
		pods := strings.Fields(s.run(ctx, "get", "pods", "--selector=job-name=build", "--output=jsonpath={.items[*].metadata.name}"))
		Expect(pods).To(HaveLen(2))
		for _, pod := range pods {
			Expect(s.run(ctx, "logs", pod)).To(Equal("one\ntwo\nthree\n"))
			p := s.await(ctx, pod, And(inPhase(corev1.PodSucceeded), container("one", terminated("Completed", 0)), container("two", terminated("Completed", 0))))
			Expect(p).To(haveCondition(corev1.PodInitialized, corev1.ConditionTrue))
		}
		Expect(s.run(ctx, "get", "pods")).To(ContainSubstring("0/1     Completed   0"))
	})

	It("starts no container after a failed init container", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: unmade}
spec:
  restartPolicy: Never
  initContainers:
  - {name: one, image: "localhost/svc/busybox:1", command: [sh, -c, 'exit 4']}
  - {name: two, image: "localhost/svc/busybox:1", command: ["true"]}
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: ["true"]}
`)
		p := s.await(ctx, "unmade", And(inPhase(corev1.PodFailed), container("one", terminated("Error", 4)),
			container("two", waiting("PodInitializing")), container("main", waiting("PodInitializing"))))
		Expect(p).To(haveCondition(corev1.PodInitialized, corev1.ConditionFalse))
		Expect(s.run(ctx, "get", "pod", "unmade")).To(ContainSubstring("Init:Error"))
	})

	It("starts sidecars before its containers and stops them after them", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: flanked}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 60
  initContainers:
  - name: sidecar
    image: localhost/svc/server:1
    restartPolicy: Always
    startupProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 60}
  containers:
  - {name: main, image: "localhost/svc/server:1", args: ["--listen=:8081"]}
`)
		p := s.await(ctx, "flanked", And(beReady(), container("sidecar", And(running(), HaveField("Ready", BeTrue()))), container("main", running())))
		Expect(s.run(ctx, "get", "pod", "flanked")).To(ContainSubstring("2/2     Running"))
		By("a sidecar that ends is started again")
		post(ctx, "http://"+p.Status.PodIP+":8080/exit?code=3")
		s.await(ctx, "flanked", And(beReady(), container("sidecar", And(running(), restarted(1)))))
		By("the pod ends with its containers")
		post(ctx, "http://"+p.Status.PodIP+":8081/exit?code=0")
		s.await(ctx, "flanked", And(inPhase(corev1.PodSucceeded), container("sidecar", terminated("Completed", 0))))
		Expect(s.run(ctx, "logs", "flanked", "--container=sidecar")).To(HaveSuffix("signal: terminated\nended in order\n"))
	})

	It("runs its hooks", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: hooked}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'trap "echo told to end; exit 0" TERM; echo here; while :; do sleep 0.05; done']
    lifecycle:
      postStart: {exec: {command: [sh, -c, 'echo begun > /proc/1/fd/1']}}
      preStop: {exec: {command: [sh, -c, 'echo about to end > /proc/1/fd/1']}}
  - name: web
    image: localhost/svc/server:1
    lifecycle: {preStop: {httpGet: {path: /hook, port: 8080}}}
`)
		s.await(ctx, "hooked", beReady())
		follow := s.command(ctx, "logs", "hooked", "--follow", "--container=main")
		var mainLog, webLog syncBuffer
		follow.Stdout = &mainLog
		Expect(follow.Start()).To(Succeed())
		followWeb := s.command(ctx, "logs", "hooked", "--follow", "--container=web")
		followWeb.Stdout = &webLog
		Expect(followWeb.Start()).To(Succeed())
		Eventually(mainLog.String).Should(Or(Equal("begun\nhere\n"), Equal("here\nbegun\n"))) // both at once
		Eventually(webLog.String).ShouldNot(BeEmpty())
		s.run(ctx, "delete", "pod", "hooked")
		Expect(follow.Wait()).To(Succeed())
		Expect(followWeb.Wait()).To(Succeed())
		Expect(mainLog.String()).To(HaveSuffix("\nabout to end\ntold to end\n"))
		Expect(webLog.String()).To(ContainSubstring("GET /hook\nsignal: terminated\n"))
	})

	It("restarts a container whose postStart hook fails", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: unhooked}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no; exit 9']}}}
`)
		Eventually(s.events(ctx, "unhooked")).Should(ContainElements(
			HavePrefix("FailedPostStartHook: PostStartHook failed"), "Killing: FailedPostStartHook"))
		s.await(ctx, "unhooked", container("main", restarted(1)))
	})

	DescribeTable("terminates within a grace period", func(ctx SpecContext, own string, atLeast time.Duration, flags ...string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: deaf, finalizers: [example.com/look]}
spec:
  terminationGracePeriodSeconds: `+own+`
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'trap "echo not yet" TERM; while :; do sleep 0.05; done']
`)
		s.await(ctx, "deaf", beReady())
		asked := time.Now().Truncate(time.Second)
		s.run(ctx, append([]string{"delete", "pod", "deaf", "--wait=false"}, flags...)...)
		p := s.await(ctx, "deaf", And(inPhase(corev1.PodFailed), container("main", terminated("Error", 137))))
		c, err := containerOf(p, "main")
		Expect(err).NotTo(HaveOccurred())
		Expect(c.State.Terminated.FinishedAt.Time).To(BeTemporally(">=", asked.Add(atLeast)))
		s.run(ctx, "patch", "pod", "deaf", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		Eventually(func() error { _, err := s.get(ctx, "deaf"); return err }).Should(MatchError(ContainSubstring("not found")))
	},
		Entry("of its own", "3", 3*time.Second),
		Entry("of the delete request", "1000", 2*time.Second, "--grace-period=2"),
		Entry("of none", "1000", time.Duration(0), "--grace-period=0", "--force"),
	)

	It("terminates at its deadline", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"]}
`)
		s.await(ctx, "limited", beReady())
		s.run(ctx, "patch", "pod", "limited", "--type=merge", `--patch={"spec":{"activeDeadlineSeconds":1}}`)
		p := s.await(ctx, "limited", And(inPhase(corev1.PodFailed), HaveField("Status.Reason", "DeadlineExceeded")))
		Expect(p.Status.Message).To(Equal("Pod was active on the node longer than the specified deadline"))
		Expect(p).To(container("main", terminated("Error", 137)))
	})

	It("reports a termination message", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: spoken}
spec:
  restartPolicy: Never
  containers:
  - {name: file, image: "localhost/svc/busybox:1", command: [sh, -c, 'printf "from the file" > /dev/termination-log']}
  - {name: place, image: "localhost/svc/busybox:1", command: [sh, -c, 'printf elsewhere > /tmp/message'], terminationMessagePath: /tmp/message}
  - {name: log, image: "localhost/svc/busybox:1", command: [sh, -c, 'echo last words; exit 1'], terminationMessagePolicy: FallbackToLogsOnError}
  - {name: long, image: "localhost/svc/busybox:1", command: [sh, -c, 'head -c 10000 /dev/zero | tr "\\0" x > /dev/termination-log']}
`)
		p := s.await(ctx, "spoken", inPhase(corev1.PodFailed))
		message := func(name string) string {
			c, err := containerOf(p, name)
			Expect(err).NotTo(HaveOccurred())
			return ptr.Deref(c.State.Terminated, corev1.ContainerStateTerminated{}).Message
		}
		Expect(message("file")).To(Equal("from the file"))
		Expect(message("place")).To(Equal("elsewhere"))
		Expect(message("log")).To(Equal("last words\n"))
		Expect(message("long")).To(Equal(strings.Repeat("x", 12<<10/4)), "the containers share 12 KiB")
	})
})
