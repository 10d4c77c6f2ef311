package controllers

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// uninitialized is the taint with which --cloud-provider=external registers a node.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// cloudClass is the load balancer class of the cloud.
const cloudClass = "example.com/cloud"

// runCloud does what a cloud controller manager does until the spec ends: it completes a
// node, and gives the services of its load balancer class in a namespace an address.
func runCloud(ctx context.Context, nodeName, namespace string) {
	GinkgoHelper()
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	nodeWatch, err := client.Watch(running, &corev1.NodeList{}, ctrlclient.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", nodeName)})
	Expect(err).NotTo(HaveOccurred())
	serviceWatch, err := client.Watch(running, &corev1.ServiceList{}, ctrlclient.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		cancel()
		<-done
		<-done
	})
	go func() {
		defer func() { done <- struct{}{} }()
		for event := range nodeWatch.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if !ok || !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized }) {
				continue
			}
			// An update that fails, as another was first, is followed by the other's event.
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}}
			if client.Status().Update(running, node) == nil {
				node.Spec.ProviderID = "test:///" + node.Name
				node.Labels[corev1.LabelTopologyZone] = "cloud-zone"
				node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
				_ = client.Update(running, node)
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for event := range serviceWatch.ResultChan() {
			service, ok := event.Object.(*corev1.Service)
			if !ok || service.Spec.LoadBalancerClass == nil || *service.Spec.LoadBalancerClass != cloudClass || len(service.Status.LoadBalancer.Ingress) > 0 {
				continue
			}
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}}
			_ = client.Status().Update(running, service)
		}
	}()
}

var _ = Describe("nodes of an external cloud provider", func() {
	It("get pods when the cloud controller manager has completed them", func(ctx SpecContext) {
		p := newPool(ctx)
		node := p.addNode(ctx, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
		})
		p.addPod(ctx, "web", nil)
		Eventually(scheduled(ctx, p.name, "web")).Should(ContainSubstring("untolerated taint(s)"))

		runCloud(ctx, node, p.name)
		Eventually(nodeOf(ctx, p.name, "web")).Should(Equal(node))
		Expect(run(ctx, "get", "node", node, "-o", "jsonpath={.spec.providerID} {.metadata.labels.topology\\.kubernetes\\.io/zone} {.status.addresses[*].address}")).
			To(Equal("test:///" + node + " cloud-zone 192.0.2.1"))
	})

	It("leave services to the cloud's load balancer", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		runCloud(ctx, ns, ns)
		class := cloudClass
		service := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, Ports: []corev1.ServicePort{{Port: 80}}}}
		service.Namespace, service.Name = ns, "web"
		Expect(client.Create(ctx, service)).To(Succeed())
		address := func() string {
			return run(ctx, "-n", ns, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}")
		}
		Eventually(address).Should(Equal("192.0.2.80"))
		Consistently(address).Should(Equal("192.0.2.80"))
	})
})
