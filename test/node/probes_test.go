package node

import (
	"errors"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("probes", func() {
	DescribeTable("make a pod ready and unready", func(ctx SpecContext, probe string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/server:1
    args: [--unready, "--grpc=:9000"]
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1, `+probe+`}
`)
		p := s.await(ctx, "web", And(beUnready(), container("main", And(running(), HaveField("Started", HaveValue(BeTrue())))),
			HaveField("Status.PodIP", Not(BeEmpty()))))
		Expect(p).To(HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Reason", "ContainersNotReady"),
			HaveField("Message", "containers with unready status: [main]")))))
		url := "http://" + p.Status.PodIP + ":8080/ready?is="
		Eventually(func() error { _, err := get(ctx, strings.TrimSuffix(url, "ready?is=")); return err }).Should(Succeed())
		post(ctx, url+"true")
		s.await(ctx, "web", beReady())
		post(ctx, url+"false")
		s.await(ctx, "web", beUnready())
		Eventually(s.events(ctx, "web")).Should(ContainElement(HavePrefix("Unhealthy: Readiness probe failed: ")))
		Expect(s.await(ctx, "web", inPhase(corev1.PodRunning))).To(container("main", HaveField("RestartCount", BeZero())))
	},
		Entry("by HTTP", "httpGet: {path: /ready, port: http}"),
		Entry("by gRPC", "grpc: {port: 9000}"),
		Entry("by gRPC, of one service", "grpc: {port: 9000, service: web}"),
		Entry("by a command", "exec: {command: [/server, --ask=http://127.0.0.1:8080/ready]}"),
	)

	DescribeTable("that check liveness restart a container that fails", func(ctx SpecContext, probe, message string) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 1000
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'trap "" TERM; echo began; sleep 1000']
    livenessProbe: {periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1, `+probe+`}
`)
		s.await(ctx, "sick", container("main", And(running(), restarted(1), terminatedBefore("Error", 137))))
		Eventually(s.events(ctx, "sick")).Should(ContainElements(
			MatchRegexp("Unhealthy: Liveness probe failed: "+message),
			"Killing: Container main failed liveness probe, will be restarted"))
		s.run(ctx, "delete", "pod", "sick", "--grace-period=0", "--force")
		Expect(node.Output()).NotTo(ContainSubstring("createTransport"), "a warning of gRPC for each probe")
	},
		Entry("by a command", "timeoutSeconds: 60, exec: {command: [sh, -c, 'echo I am ill; exit 1']}", "I am ill"),
		Entry("by a command that takes too long", "timeoutSeconds: 1, exec: {command: [sleep, '100']}", "command timed out"),
		Entry("by a port", "timeoutSeconds: 60, tcpSocket: {port: 9}", `dial tcp .*:9: connect: connection refused`),
		Entry("by gRPC", "timeoutSeconds: 1, grpc: {port: 9}", `timeout: failed to connect service ".*:9" within 1s`),
		Entry("by HTTP", "timeoutSeconds: 60, httpGet: {port: 9}", `Get "http://.*:9/": dial tcp .*:9: connect: connection refused`),
	)

	It("wait for the startup probe", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    startupProbe: {periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1000, exec: {command: [test, -e, /started]}}
    livenessProbe: {periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1, exec: {command: [test, -e, /started]}}
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 60, exec: {command: ["true"]}}
`)
		s.await(ctx, "slow", container("main", And(running(), HaveField("Started", HaveValue(BeFalse())))))
		Eventually(s.events(ctx, "slow")).Should(ContainElement(HavePrefix("Unhealthy: Startup probe failed: ")))
		Expect(s.get(ctx, "slow")).To(And(beUnready(), container("main", HaveField("RestartCount", BeZero()))))
		s.exec(ctx, "slow", "touch /started")
		s.await(ctx, "slow", And(beReady(), container("main", And(HaveField("Started", HaveValue(BeTrue())), HaveField("RestartCount", BeZero())))))

		By("and evaluates probes from then on")
		s.exec(ctx, "slow", "rm /started")
		s.await(ctx, "slow", container("main", restarted(1)))
	})

	It("end a container that does not start", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    startupProbe: {periodSeconds: 1, failureThreshold: 1, tcpSocket: {port: 80}}
`)
		s.await(ctx, "stuck", And(inPhase(corev1.PodFailed), container("main", terminated("Error", 137))))
		Eventually(s.events(ctx, "stuck")).Should(ContainElement("Killing: Container main failed startup probe"))
	})
})

var _ = Describe("readiness gates", func() {
	It("keep a pod unready until their conditions are set", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: gated}
spec:
  terminationGracePeriodSeconds: 0
  readinessGates: [{conditionType: example.com/admitted}]
  containers:
  - {name: main, image: "localhost/svc/server:1"}
`)
		p := s.await(ctx, "gated", And(beUnready(), haveCondition(corev1.ContainersReady, corev1.ConditionTrue)))
		Expect(p).To(HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Reason", "ReadinessGatesNotReady"),
			HaveField("Message", `corresponding condition of pod readiness gate "example.com/admitted" does not exist.`)))))
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			s.run(ctx, "patch", "pod", "gated", "--subresource=status", "--type=strategic",
				`--patch={"status":{"conditions":[{"type":"example.com/admitted","status":"`+string(status)+`"}]}}`)
			s.await(ctx, "gated", And(haveCondition(corev1.PodReady, status), haveCondition("example.com/admitted", status)))
		}
	})
})

// post sends an empty request.
func post(ctx SpecContext, url string) {
	GinkgoHelper()
	Expect(tryPost(ctx, url)).To(Succeed())
}

func tryPost(ctx SpecContext, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
