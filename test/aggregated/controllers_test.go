package aggregated

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var _ = Describe("the fleet's controllers", func() {
	It("compute what a quota has used", func(ctx SpecContext) {
		n := newNamespace()
		_, err := fleetClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counted"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		const counted = corev1.ResourceName("count/configmaps")
		_, err = fleetClient.CoreV1().ResourceQuotas(n).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		used := func() string {
			return kubectl(onHost, "get", "resourcequotas.core.svc.dev", "quota", "-n", n, "-o", `jsonpath={.status.used.count/configmaps}`)
		}
		Eventually(used).Should(Equal("1"), "what was there before the quota")
		kubectl(onFleet, "create", "configmap", "second", "-n", n)
		Eventually(used).Should(Equal("2"))
		Eventually(func() string {
			_, stderr, _ := onFleet.Run(ctx, "", "create", "configmap", "third", "-n", n, "--dry-run=server")
			return stderr
		}).Should(ContainSubstring("exceeded quota: quota"))
		kubectl(onFleet, "delete", "configmap", "counted", "second", "-n", n)
		Eventually(used).Should(Equal("0"), "what is gone")
	})

	It("publish the ready pods of a service while their node renews its lease, and find the node unreachable afterwards", func(ctx SpecContext) {
		n := newNamespace()
		const node = "rack-9"
		now := metav1.Now()
		made, err := fleetClient.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { kubectl(onFleet, "delete", "node", node) })
		made.ResourceVersion = "" // the controllers change it meanwhile
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}}
		DeferCleanup(func() {
			kubectl(onFleet, "delete", "lease", node, "-n", corev1.NamespaceNodeLease, "--ignore-not-found")
		})

		_, err = fleetClient.CoreV1().Services(n).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod, err := fleetClient.CoreV1().Pods(n).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/web:1"}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			kubectl(onFleet, "delete", "pod", "web", "-n", n, "--force", "--grace-period=0", "--ignore-not-found")
		})
		pod.ResourceVersion = "" // as above
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.9.0.1", PodIPs: []corev1.PodIP{{IP: "10.9.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}

		ready := func() (ready []string) {
			slices, err := fleetClient.DiscoveryV1().EndpointSlices(n).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
			Expect(err).NotTo(HaveOccurred())
			for _, slice := range slices.Items {
				for _, endpoint := range slice.Endpoints {
					if ptr.Deref(endpoint.Conditions.Ready, false) {
						ready = append(ready, endpoint.Addresses...)
					}
				}
			}
			return ready
		}
		Eventually(func() []string {
			// All of it each time: after a pause of this machine, the node and its pod are not
			// ready until their agent says so.
			renewLease(ctx, node)
			_, err := fleetClient.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = fleetClient.CoreV1().Pods(n).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			return ready()
		}).Should(Equal([]string{"10.9.0.1"}))

		By("the node, whose lease is not renewed")
		Eventually(out(onHost, "", "get", "nodes.core.svc.dev", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)).Should(Equal("Unknown"))
		Eventually(out(onHost, "", "get", "nodes.core.svc.dev", node, "-o", "jsonpath={.spec.taints[*].key}")).Should(ContainSubstring(corev1.TaintNodeUnreachable))
		Eventually(ready).Should(BeEmpty())
	})
})

// renewLease renews the lease of a node, as its agent would.
func renewLease(ctx context.Context, node string) {
	GinkgoHelper()
	leases := fleetClient.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), RenewTime: &now, LeaseDurationSeconds: ptr.To[int32](40)}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return
	}
	Expect(err).NotTo(HaveOccurred())
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}
