package controllers

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/test/simulate"
)

var _ = Describe("nodes", Ordered, func() {
	var c *cluster
	BeforeAll(func(ctx SpecContext) {
		c = newCluster(ctx,
			"--controllers=*,-scheduler", "--terminated-pod-gc-threshold=2")
	})
	const lastEvent = "jsonpath={.items[-1:].message}"

	Describe("taint eviction", func() {
		It("deletes pods at once that do not tolerate a NoExecute taint, and tells so", func(ctx SpecContext) {
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

		It("waits as long as the pod tolerates, and no longer after a restart", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.addPod(ctx, "leaves", "n1", tolerates("drain", 4))
			c.run(ctx, "patch", "node", "n1", "--type=merge", fmt.Sprintf(
				`--patch={"spec":{"taints":[{"key":"drain","effect":"NoExecute","timeAdded":%q}]}}`, "2020-01-01T00:00:00Z"))
			// The pod is younger than the taint: its time begins with itself.
			Consistently(c.printed(ctx, "get", "pod", "leaves", "-o", "jsonpath={.metadata.deletionTimestamp}"), "500ms").Should(BeEmpty())
			c.manager.Kill()
			c.startManager(ctx)
			Eventually(c.printed(ctx, "get", "pod", "leaves")).Should(ContainSubstring("not found"))
		})

		It("does not delete a pod when the taint goes in time", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1")
			c.addPod(ctx, "stays", "n1", tolerates("drain", 2))
			c.run(ctx, "taint", "node", "n1", "drain=now:NoExecute")
			Consistently(c.printed(ctx, "get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}"), "500ms").Should(BeEmpty())
			c.run(ctx, "taint", "node", "n1", "drain-")
			Eventually(c.printed(ctx, "get", "events", "--field-selector=reason=TaintManagerEviction,involvedObject.name=stays", "-o", lastEvent)).
				Should(Equal("Cancelling deletion of Pod default/stays"))
			Consistently(c.printed(ctx, "get", "pod", "stays", "-o", "jsonpath={.metadata.deletionTimestamp}"), "2s").Should(BeEmpty())
		})
	})

	Describe("pod garbage collection", func() {
		It("keeps as many ended pods as it may, and deletes the oldest", func(ctx SpecContext) {
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

		It("ends pods that are being deleted on a node out of service", func(ctx SpecContext) {
			c.addNodes(ctx, nil, "n1", "n2")
			c.addPod(ctx, "stuck", "n1", nil)
			c.nodes.Kill("n1")
			c.run(ctx, "delete", "pod", "stuck", "--wait=false")
			c.run(ctx, "taint", "node", "n1", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
			Consistently(c.printed(ctx, "get", "pod", "stuck", "-o", "jsonpath={.status.phase}")).Should(Equal("Running"))
			c.run(ctx, "patch", "node", "n1", "--subresource=status", "--type=strategic",
				`--patch={"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
			Eventually(c.printed(ctx, "get", "pod", "stuck")).Should(ContainSubstring("not found"))
		})

		It("fails pods that are being deleted and have no node", func(ctx SpecContext) {
			c.addPod(ctx, "unscheduled", "", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
			c.run(ctx, "delete", "pod", "unscheduled", "--wait=false")
			Eventually(c.printed(ctx, "get", "pod", "unscheduled", "-o", "jsonpath={.status.phase}")).Should(Equal("Failed"))
			c.run(ctx, "patch", "pod", "unscheduled", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		})
	})
})
