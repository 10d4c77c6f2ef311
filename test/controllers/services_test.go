package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("endpointslice", func() {
	var ns string
	BeforeEach(func(ctx SpecContext) {
		ns = newNamespace(ctx)
		addNode(ctx, ns, func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "east" })
	})

	It("updates endpoints when pods become ready and are deleted", func(ctx SpecContext) {
		Expect(client.Create(ctx, boundPod(ns, "a", ns))).To(Succeed())
		run(ctx, "-n", ns, "expose", "pod", "a", "--port=80", "--target-port=8080", "--name=web")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 8080"))
		Expect(slicesOf(ctx, ns, "web")[0].Annotations).To(HaveKey(corev1.EndpointsLastChangeTriggerTime))
		Expect(client.Create(ctx, boundPod(ns, "b", ns))).To(Succeed())
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 8080, b ready 8080"))
		Expect(run(ctx, "-n", ns, "get", "endpointslices")).To(MatchRegexp(`(?m)^web-\S+ +IPv4 +8080 +10\.\S+,10\.\S+ `))

		setReady(ctx, ns, "b", corev1.ConditionFalse)
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 8080, b - 8080"))
		run(ctx, "-n", ns, "delete", "pod", "b")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 8080"))
		run(ctx, "-n", ns, "label", "pod", "a", "app=other", "--overwrite")
		Eventually(endpointsOf(ctx, ns, "web")).Should(BeEmpty())

		slice := slicesOf(ctx, ns, "web")[0]
		Expect(slice.Labels).To(HaveKeyWithValue(discoveryv1.LabelManagedBy, "endpointslice-controller.k8s.io"))
		Expect(slice.OwnerReferences).To(HaveExactElements(HaveField("Name", "web")))
	})

	It("marks terminating endpoints, and publishes unready ones if the service asks for it", func(ctx SpecContext) {
		Expect(client.Create(ctx, boundPod(ns, "a", ns))).To(Succeed())
		run(ctx, "-n", ns, "expose", "pod", "a", "--port=80", "--cluster-ip=None", "--name=web")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 80"))
		Expect(slicesOf(ctx, ns, "web")[0].Labels).To(HaveKey(corev1.IsHeadlessService))

		nodes.Kill(ns) // whose pods do not end, then
		run(ctx, "-n", ns, "delete", "pod", "a", "--wait=false")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a serving,terminating 80"))
		run(ctx, "-n", ns, "patch", "service", "web", `--patch={"spec":{"publishNotReadyAddresses":true}}`)
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready,serving,terminating 80"))
		Expect(nodes.Revive(ctx, ns)).To(Succeed())
		Eventually(endpointsOf(ctx, ns, "web")).Should(BeEmpty())
	})

	It("splits many endpoints into slices, with hints for zones", func(ctx SpecContext) {
		run(ctx, "-n", ns, "create", "service", "clusterip", "web", "--tcp=80")
		run(ctx, "-n", ns, "patch", "service", "web", `--patch={"spec":{"trafficDistribution":"PreferSameZone"}}`)
		for i := range 101 {
			Expect(client.Create(ctx, boundPod(ns, fmt.Sprintf("web-%d", i), ns))).To(Succeed())
		}
		run(ctx, "-n", ns, "set", "selector", "service/web", "app="+ns)
		Eventually(func() int { return strings.Count(endpointsOf(ctx, ns, "web")(), "ready") }).Should(Equal(101))
		found := slicesOf(ctx, ns, "web")
		Expect(found).To(HaveLen(2))
		for _, e := range slices.Concat(found[0].Endpoints, found[1].Endpoints) {
			Expect(e.Hints.ForZones).To(Equal([]discoveryv1.ForZone{{Name: "east"}}))
		}
	})

	It("restores endpoints that other clients change, and applies changes made while no manager ran", func(ctx SpecContext) {
		Expect(client.Create(ctx, boundPod(ns, "a", ns))).To(Succeed())
		run(ctx, "-n", ns, "expose", "pod", "a", "--port=80", "--name=web")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 80"))
		slice := withoutEndpoints(ctx, ns, "web")
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("a ready 80"))

		killManager(ctx)
		run(ctx, "-n", ns, "delete", "pod", "a")
		Expect(client.Create(ctx, boundPod(ns, "b", ns))).To(Succeed())
		Expect(client.Delete(ctx, &slice)).To(Succeed())
		startManager(ctx)
		Eventually(endpointsOf(ctx, ns, "web")).Should(Equal("b ready 80"))
		Eventually(func() []discoveryv1.EndpointSlice { return slicesOf(ctx, ns, "web") }).Should(HaveLen(1))
	})
})

var _ = Describe("endpoint", func() {
	It("keeps the Endpoints of services with a selector, and only those", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		addNode(ctx, ns, nil)
		Expect(client.Create(ctx, boundPod(ns, "a", ns))).To(Succeed())
		Expect(client.Create(ctx, boundPod(ns, "b", ns))).To(Succeed())
		run(ctx, "-n", ns, "expose", "pod", "a", "--port=80", "--name=web")
		Expect(client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		})).To(Succeed())
		own := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
		Expect(client.Create(ctx, own)).To(Succeed())
		subsets := func() string {
			var e corev1.Endpoints
			if err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: ns, Name: "web"}, &e); err != nil {
				return err.Error()
			}
			var words []string
			for _, s := range e.Subsets {
				for _, a := range s.Addresses {
					words = append(words, a.TargetRef.Name)
				}
				for _, a := range s.NotReadyAddresses {
					words = append(words, "not "+a.TargetRef.Name)
				}
			}
			return strings.Join(words, ", ")
		}
		Eventually(subsets).Should(Equal("a, b"))
		setReady(ctx, ns, "a", corev1.ConditionFalse)
		Eventually(subsets).Should(Equal("b, not a"))

		By("mending what others write")
		var e corev1.Endpoints
		Eventually(ctx, func(g Gomega) { // the controller may write it in between
			g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: ns, Name: "web"}, &e)).To(Succeed())
			e.Subsets = nil
			g.Expect(client.Update(ctx, &e)).To(Succeed())
		}).Should(Succeed())
		Eventually(subsets).Should(Equal("b, not a"))

		By("deleting what has lost its service while no manager ran")
		killManager(ctx)
		run(ctx, "-n", ns, "delete", "service", "web")
		startManager(ctx)
		eventuallyGone(ctx, &e)
		Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(own), own)).To(Succeed())
	})
})

var _ = Describe("endpointslicemirroring", func() {
	It("mirrors the Endpoints of services without a selector", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		Expect(client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		})).To(Succeed())
		own := &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own", Labels: map[string]string{"made-by": "me"}},
			Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}, Ports: []corev1.EndpointPort{{Port: 80}},
			}},
		}
		Expect(client.Create(ctx, own)).To(Succeed())
		mirrors := func() string {
			var words []string
			for _, s := range slicesOf(ctx, ns, "own") {
				for _, e := range s.Endpoints {
					words = append(words, fmt.Sprint(s.AddressType, " ", e.Addresses[0], " ", s.Labels["made-by"]))
				}
			}
			slices.Sort(words)
			return strings.Join(words, ", ")
		}
		Eventually(mirrors).Should(Equal("IPv4 192.0.2.1 me, IPv6 2001:db8::1 me"))

		By("mending what others write, and following what changed while no manager ran")
		withoutEndpoints(ctx, ns, "own")
		Eventually(mirrors).Should(Equal("IPv4 192.0.2.1 me, IPv6 2001:db8::1 me"))
		killManager(ctx)
		own.Subsets[0].Addresses = []corev1.EndpointAddress{{IP: "192.0.2.2"}}
		Expect(client.Update(ctx, own)).To(Succeed())
		startManager(ctx)
		Eventually(mirrors).Should(Equal("IPv4 192.0.2.2 me"))

		By("leaving the service to its selector")
		run(ctx, "-n", ns, "set", "selector", "service/own", "app=none")
		Eventually(func() []string {
			var managers []string
			for _, s := range slicesOf(ctx, ns, "own") {
				managers = append(managers, s.Labels[discoveryv1.LabelManagedBy])
			}
			return managers
		}).Should(ConsistOf("endpointslice-controller.k8s.io"))
	})
})

// addNode adds a simulated node for the spec.
func addNode(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Expect(nodes.Add(ctx, name, change)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		nodes.Kill(name)
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
	})
}

// boundPod is a pod of the app that is named like its namespace, on a node.
func boundPod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": namespace}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

// setReady sets whether a pod is ready once it runs.
func setReady(ctx context.Context, namespace, name string, ready corev1.ConditionStatus) {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Eventually(func(g Gomega) {
		g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: name}, pod)).To(Succeed())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.LastTransitionTime = ready, metav1.Now()
			}
		}
		g.Expect(client.Status().Update(ctx, pod)).To(Succeed())
	}).Should(Succeed())
}

func slicesOf(ctx context.Context, namespace, service string) []discoveryv1.EndpointSlice {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(client.List(ctx, &list, ctrlclient.InNamespace(namespace), ctrlclient.MatchingLabels{discoveryv1.LabelServiceName: service})).To(Succeed())
	return list.Items
}

// withoutEndpoints removes the endpoints from a slice of a service, as another client.
func withoutEndpoints(ctx context.Context, namespace, service string) discoveryv1.EndpointSlice {
	GinkgoHelper()
	var slice discoveryv1.EndpointSlice
	Eventually(ctx, func() error { // the controller may write it in between
		slice = slicesOf(ctx, namespace, service)[0]
		slice.Endpoints = nil
		return client.Update(ctx, &slice)
	}).Should(Succeed())
	return slice
}

// endpointsOf returns the endpoints in the slices of a service: pod, conditions,
// ports. Serving is told of those that are not ready only because they end.
func endpointsOf(ctx context.Context, namespace, service string) func() string {
	return func() string {
		GinkgoHelper()
		var words []string
		for _, slice := range slicesOf(ctx, namespace, service) {
			var ports []string
			for _, p := range slice.Ports {
				ports = append(ports, fmt.Sprint(*p.Port))
			}
			for _, e := range slice.Endpoints {
				var conditions []string
				for name, is := range map[string]bool{
					"ready": *e.Conditions.Ready, "serving": *e.Conditions.Serving && *e.Conditions.Terminating, "terminating": *e.Conditions.Terminating,
				} {
					if is {
						conditions = append(conditions, name)
					}
				}
				slices.Sort(conditions)
				words = append(words, fmt.Sprintf("%s %s %s", e.TargetRef.Name, cmp.Or(strings.Join(conditions, ","), "-"), strings.Join(ports, ",")))
			}
		}
		slices.Sort(words)
		return strings.Join(words, ", ")
	}
}

var _ = Describe("hostloadbalancer", func() {
	It("gives services the addresses of nodes, and reports conflicts of ports", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		addNode(ctx, ns, func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
		})
		address := func(name string) func() string {
			return func() string {
				return run(ctx, "-n", ns, "get", "service", name, "-o=jsonpath={.status.loadBalancer.ingress[*].ip}")
			}
		}
		run(ctx, "-n", ns, "create", "service", "loadbalancer", "first", "--tcp=8123:80")
		Eventually(address("first")).Should(ContainSubstring("192.0.2.7"))
		run(ctx, "-n", ns, "create", "service", "loadbalancer", "second", "--tcp=8123:80")
		Eventually(func() string { return run(ctx, "-n", ns, "describe", "service", "second") }).Should(
			MatchRegexp(`Warning +SyncLoadBalancerFailed .*service-controller +Error syncing load balancer: port 8123/TCP of the nodes is used by service ` + ns + `/first: choose another port`))
		Expect(address("second")()).To(BeEmpty())
		Expect(run(ctx, "-n", ns, "get", "service", "second")).To(ContainSubstring("<pending>"))

		run(ctx, "-n", ns, "delete", "service", "first")
		Eventually(address("second")).Should(ContainSubstring("192.0.2.7"))
		run(ctx, "-n", ns, "patch", "service", "second", `--patch={"spec":{"type":"ClusterIP"}}`)
		Eventually(address("second")).Should(BeEmpty())
	})
})
