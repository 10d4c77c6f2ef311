package node

import (
	"context"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// uninitialized is the taint of a node that its cloud controller manager has not completed.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// The agent has a flag of its own, so the spec uses its own API server and agent.
var _ = Describe("svclet with --cloud-provider=external", func() {
	It("runs no pods before the cloud controller manager has completed its node, and keeps the addresses of that", func(ctx SpecContext) {
		const name = "clouded"
		suiteClient, suiteKubectl := client, kubectl
		DeferCleanup(func() { client, kubectl = suiteClient, suiteKubectl })
		machine := newMachine(ctx)
		server, err := launch.Up(ctx, filepath.Join(machine.Dir, "server"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Kill)
		client, err = clientOf(server.Config)
		Expect(err).NotTo(HaveOccurred())
		kubectl = launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: machine.Dir}
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err := machine.NewAgent(launch.Svclet, program, name)
		Expect(err).NotTo(HaveOccurred())
		agent.Args = append(agent.Args, "--cloud-provider=external")
		agent.Fields = map[string]any{"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s"}
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		Expect(agent.Configure(cluster)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func() { agent.Kill() })

		node := func() (*corev1.Node, error) {
			n := &corev1.Node{}
			return n, client.Get(ctx, ctrlclient.ObjectKey{Name: name}, n)
		}
		taints := HaveField("Spec.Taints", ContainElement(HaveField("Key", uninitialized)))
		Eventually(node).Should(And(taints, conditionOf(corev1.NodeReady, corev1.ConditionTrue)), agent.Output)
		s := newSpace(ctx)
		s.apply(ctx, sleeper("waits", ""))
		Eventually(s.events(ctx, "waits")).Should(ContainElement(ContainSubstring("untolerated taint(s)")))

		complete(ctx, name)
		s.await(ctx, "waits", beReady())
		outside := HaveField("Status.Addresses", ContainElement(corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.7"}))
		heartbeat := func() string {
			n, err := node()
			Expect(err).NotTo(HaveOccurred())
			i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
			return n.Status.Conditions[i].LastHeartbeatTime.String()
		}
		before := heartbeat()
		Eventually(heartbeat).ShouldNot(Equal(before)) // the agent has written its status since
		Expect(node()).To(And(outside, HaveField("Spec.ProviderID", "test:///"+name), Not(taints)))

		By("also when the agent starts again")
		agent.Kill()
		Expect(agent.Start()).To(Succeed())
		before = heartbeat()
		Eventually(heartbeat).ShouldNot(Equal(before))
		Expect(node()).To(And(outside, Not(taints)))
		s.run(ctx, "delete", "pod", "waits")
	})
})

// complete does what a cloud controller manager does with a new node.
func complete(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		n := &corev1.Node{}
		g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: name}, n)).To(Succeed())
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.7"})
		g.Expect(client.Status().Update(ctx, n)).To(Succeed())
		n.Spec.ProviderID = "test:///" + name
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
		g.Expect(client.Update(ctx, n)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}
