package controllers

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/simulate"
)

var _ = Describe("nodes", Ordered, func() {
	var c *cluster
	BeforeAll(func(ctx SpecContext) {
		c = newCluster(ctx,
			"--controllers=*,-scheduler", "--terminated-pod-gc-threshold=2",
			"--node-monitor-grace-period=10s", "--node-startup-grace-period=10s", "--node-eviction-rate=5",
			"--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/22,fd00::/56", "--service-cluster-ip-range=10.244.1.0/24")
	})
	const lastEvent = "jsonpath={.items[-1:].message}"

	// taints are those of a node, as key:effect.
	taints := func(ctx SpecContext, node string) func() string {
		return c.printed(ctx, "get", "node", node, "-o", `jsonpath={range .spec.taints[*]}{.key}:{.effect} {end}`)
	}
	ready := func(ctx SpecContext, kind, name string) func() string {
		return c.printed(ctx, "get", kind, name, "-o", `jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason} {.message}{end}`)
	}
	events := func(ctx SpecContext, name, reason string) func() string {
		return c.printed(ctx, "get", "events", "--field-selector=reason="+reason+",involvedObject.name="+name, "-o", lastEvent)
	}
	const (
		unreachable = "node.kubernetes.io/unreachable:NoSchedule node.kubernetes.io/unreachable:NoExecute "
		silent      = "Unknown NodeStatusUnknown Kubelet stopped posting node status."
	)

	Describe("node lifecycle", func() {
		It("detects an unreachable node, evicts its pods, and removes the taints when it is ready again", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1", "n2")
			Eventually(events(ctx, "n1", "RegisteredNode")).Should(Equal("Node n1 event: Registered Node n1 in Controller"))
			c.addPod(ctx, "leaves", "n1", tolerates("node.kubernetes.io/unreachable", 0))
			c.addPod(ctx, "stays", "n1", nil) // for five minutes, as all pods that do not say otherwise
			c.nodes.Kill("n1")
			Eventually(ready(ctx, "node", "n1")).Should(Equal(silent))
			Eventually(taints(ctx, "n1")).Should(Equal(unreachable))
			Eventually(events(ctx, "n1", "NodeNotReady")).Should(Equal("Node n1 status is now: NodeNotReady"))
			Eventually(ready(ctx, "pod", "stays")).Should(HavePrefix("False"))
			Eventually(events(ctx, "stays", "NodeNotReady")).Should(Equal("Node is not ready"))
			Eventually(c.printed(ctx, "get", "pod", "leaves", "-o", "jsonpath={.metadata.deletionTimestamp}")).ShouldNot(BeEmpty())
			Expect(taints(ctx, "n2")()).To(BeEmpty())

			Expect(c.nodes.Revive(ctx, "n1")).To(Succeed())
			Eventually(taints(ctx, "n1")).Should(BeEmpty())
			Eventually(c.printed(ctx, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")).Should(Equal("stays"))
			c.run(ctx, "delete", "node", "n2")
			Eventually(events(ctx, "n2", "RemovingNode")).Should(Equal("Node n2 event: Removing Node n2 from Controller"))
		})

		It("evicts no pods when all nodes are unreachable", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1", "n2", "n3")
			c.addPod(ctx, "stays", "n1", tolerates("node.kubernetes.io/unreachable", 0))
			for _, n := range []string{"n1", "n2", "n3"} {
				c.nodes.Kill(n)
			}
			for _, n := range []string{"n1", "n2", "n3"} {
				Eventually(ready(ctx, "node", n)).Should(Equal(silent))
			}
			for _, n := range []string{"n1", "n2", "n3"} {
				Consistently(taints(ctx, n), "500ms").Should(Equal("node.kubernetes.io/unreachable:NoSchedule "))
			}
			Expect(c.run(ctx, "get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}")).To(BeEmpty())
			// Those that are not ready with the others are unreachable.
			Expect(c.nodes.Revive(ctx, "n1")).To(Succeed())
			Expect(c.nodes.Revive(ctx, "n2")).To(Succeed())
			Eventually(taints(ctx, "n3")).Should(Equal(unreachable))
			Expect(taints(ctx, "n1")()).To(BeEmpty())
		})

		It("continues after it was killed, and after conflicts", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1", "n2")
			c.addPod(ctx, "leaves", "n1", tolerates("node.kubernetes.io/unreachable", 0))
			c.nodes.Kill("n1")
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer GinkgoRecover()
				defer close(done)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						c.run(ctx, "annotate", "node", "n1", fmt.Sprintf("busy=%d", i), "--overwrite")
					}
				}
			}()
			Eventually(ready(ctx, "node", "n1")).Should(Equal(silent))
			c.killManager(ctx)
			c.run(ctx, "taint", "node", "n1", "mine=1:NoSchedule")
			c.startManager(ctx)
			Eventually(taints(ctx, "n1")).Should(And(
				ContainSubstring("mine:NoSchedule"),
				ContainSubstring("node.kubernetes.io/unreachable:NoSchedule"),
				ContainSubstring("node.kubernetes.io/unreachable:NoExecute")))
			close(stop)
			<-done
			Eventually(c.printed(ctx, "get", "pod", "leaves", "-o", "jsonpath={.metadata.deletionTimestamp}")).ShouldNot(BeEmpty())
			Eventually(ready(ctx, "pod", "leaves")).Should(HavePrefix("False"))
		})

		It("taints cordoned nodes, and sets the beta labels", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.run(ctx, "cordon", "n1")
			Eventually(taints(ctx, "n1")).Should(Equal("node.kubernetes.io/unschedulable:NoSchedule "))
			c.run(ctx, "uncordon", "n1")
			Eventually(taints(ctx, "n1")).Should(BeEmpty())
			Eventually(c.printed(ctx, "get", "node", "n1", "-L", "beta.kubernetes.io/os,beta.kubernetes.io/arch")).Should(MatchRegexp(`linux +amd64`))
		})
	})

	Describe("node address ranges", func() {
		ranges := func(ctx SpecContext, node string) func() string {
			return c.printed(ctx, "get", "node", node, "-o", "jsonpath={.spec.podCIDR} {.spec.podCIDRs}")
		}
		It("allocates different ranges to all nodes, after a restart too, and waits while none is free", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			Eventually(ranges(ctx, "n1")).Should(MatchRegexp(`^10.244.[023].0/24 \["10.244.[023].0/24","fd00:0:0:[0-9a-f:]*/64"\]$`))
			c.killManager(ctx)
			c.addNodes(ctx, nil, "n2", "n3", "n4")
			c.startManager(ctx)
			given := func() []string {
				return strings.Fields(c.printed(ctx, "get", "nodes", "-o", "jsonpath={.items[*].spec.podCIDR}")())
			}
			Eventually(given).Should(ConsistOf("10.244.0.0/24", "10.244.2.0/24", "10.244.3.0/24"))
			left := ""
			for _, n := range []string{"n2", "n3", "n4"} {
				if ranges(ctx, n)() == " " {
					left = n
				}
			}
			Eventually(events(ctx, left, "CIDRNotAvailable")).Should(Equal("Node " + left + " status is now: CIDRNotAvailable"))
			was := strings.Fields(ranges(ctx, "n1")())[0]
			c.run(ctx, "delete", "node", "n1")
			Eventually(ranges(ctx, left)).Should(HavePrefix(was + " "))
		})
	})

	Describe("taint eviction", func() {
		It("deletes pods that do not tolerate a NoExecute taint at once, and records an event", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.addPod(ctx, "leaves", "n1", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
			c.addPod(ctx, "stays", "n1", func(pod *corev1.Pod) {
				pod.Spec.Tolerations = []corev1.Toleration{{Key: "drain", Operator: corev1.TolerationOpExists}}
			})
			c.run(ctx, "taint", "node", "n1", "drain=now:NoExecute")
			Eventually(c.printed(ctx, "get", "pod", "leaves", "-o", `jsonpath={.metadata.deletionTimestamp} {.status.conditions[?(@.type=="DisruptionTarget")].reason}`)).
				Should(MatchRegexp(`.+ DeletionByTaintManager`))
			Eventually(c.printed(ctx, "get", "events", "--field-selector=reason=TaintManagerEviction,involvedObject.name=leaves", "-o", lastEvent)).
				Should(Equal("Marking for deletion Pod default/leaves"))
			c.run(ctx, "patch", "pod", "leaves", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
			Consistently(c.printed(ctx, "get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}")).Should(BeEmpty())
		})

		It("waits for tolerationSeconds, and no longer after a restart", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.addPod(ctx, "leaves", "n1", tolerates("drain", 20))
			c.run(ctx, "patch", "node", "n1", "--type=merge", fmt.Sprintf(
				`--patch={"spec":{"taints":[{"key":"drain","effect":"NoExecute","timeAdded":%q}]}}`, "2020-01-01T00:00:00Z"))
			// The pod is younger than the taint: its time begins with itself.
			Consistently(c.printed(ctx, "get", "pod", "leaves", "-o", "jsonpath={.metadata.deletionTimestamp}"), "500ms").Should(BeEmpty())
			c.killManager(ctx)
			c.startManager(ctx)
			Eventually(c.printed(ctx, "get", "pod", "leaves")).Should(ContainSubstring("not found"))
		})

		It("does not delete a pod when the taint is removed in time", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.addPod(ctx, "stays", "n1", tolerates("drain", 10))
			// Not by kubectl, whose start may take seconds.
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			taint := func(taints string) {
				GinkgoHelper()
				Expect(c.client.Patch(ctx, node, mergePatch(`{"spec":{"taints":%s}}`, taints))).To(Succeed())
			}
			taint(`[{"key":"drain","value":"now","effect":"NoExecute"}]`)
			Consistently(func() (*metav1.Time, error) {
				pod := &corev1.Pod{}
				err := c.client.Get(ctx, ctrlclient.ObjectKey{Namespace: "default", Name: "stays"}, pod)
				return pod.DeletionTimestamp, err
			}, "500ms").Should(BeNil())
			taint("null")
			Eventually(c.printed(ctx, "get", "events", "--field-selector=reason=TaintManagerEviction,involvedObject.name=stays", "-o", lastEvent)).
				Should(Equal("Cancelling deletion of Pod default/stays"))
			Consistently(c.printed(ctx, "get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}"), "10s").Should(BeEmpty())
		})
	})

	Describe("pod garbage collection", func() {
		It("deletes the oldest terminated pods beyond the threshold", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			for i := range 4 {
				c.addPod(ctx, fmt.Sprintf("ends-%d", i), "n1", func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{simulate.ExitAnnotation: "0"}
				})
				Eventually(c.printed(ctx, "get", "pod", fmt.Sprintf("ends-%d", i), "-o", "jsonpath={.status.phase}")).
					Should(Or(Equal("Succeeded"), ContainSubstring("not found")))
			}
			Eventually(c.printed(ctx, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")).Should(Equal("ends-2 ends-3"))
		})

		It("force deletes terminating pods on a node that is out of service", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1", "n2")
			c.addPod(ctx, "stuck", "n1", nil)
			c.nodes.Kill("n1")
			// Not by kubectl, whose start may take seconds.
			stuck := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stuck"}}
			Expect(c.client.Delete(ctx, stuck)).To(Succeed())
			Expect(c.client.Get(ctx, ctrlclient.ObjectKeyFromObject(stuck), stuck)).To(Succeed())
			Expect(stuck.Status.Phase).To(Equal(corev1.PodRunning))
			c.run(ctx, "taint", "node", "n1", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
			Eventually(c.printed(ctx, "get", "pod", "stuck")).Should(ContainSubstring("not found"))
		})

		It("sets terminating pods without a node to Failed", func(ctx SpecContext) {
			c.addPod(ctx, "unscheduled", "", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
			c.run(ctx, "delete", "pod", "unscheduled", "--wait=false")
			Eventually(c.printed(ctx, "get", "pod", "unscheduled", "-o", "jsonpath={.status.phase}")).Should(Equal("Failed"))
			c.run(ctx, "patch", "pod", "unscheduled", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		})
	})
})
