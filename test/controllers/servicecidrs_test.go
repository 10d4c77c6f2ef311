package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("service CIDRs", func() {
	It("add ranges for addresses of services, and stay while a service has one", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		withAddress := func(name string) *corev1.Service {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{
				ClusterIP: "10.77.0.3", Ports: []corev1.ServicePort{{Port: 80}},
			}}
		}
		Expect(client.Create(ctx, withAddress("early"))).To(MatchError(ContainSubstring("failed to allocate IP 10.77.0.3: the provided network does not match the current range")))
		added := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "added"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.77.0.0/29"}}}
		Expect(client.Create(ctx, added)).To(Succeed())
		ready := func() (*metav1.Condition, error) {
			err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(added), added)
			return meta.FindStatusCondition(added.Status.Conditions, networkingv1.ServiceCIDRConditionReady), err
		}
		Eventually(ready).Should(HaveField("Status", metav1.ConditionTrue))
		Expect(finalizers(ctx, added)()).To(ConsistOf("networking.k8s.io/service-cidr-finalizer"))
		Eventually(func() error { return client.Create(ctx, withAddress("user")) }).Should(Succeed())
		Expect(run(ctx, "get", "ipaddress", "10.77.0.3")).To(MatchRegexp(`(?m)^10\.77\.0\.3 +services/` + ns + `/user$`))
		Expect(run(ctx, "get", "servicecidrs")).To(And(MatchRegexp(`(?m)^added +10\.77\.0\.0/29 `), MatchRegexp(`(?m)^kubernetes +\S+ `)))

		By("deleting it")
		Expect(client.Delete(ctx, added)).To(Succeed())
		Eventually(ready).Should(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Terminating")))
		second := withAddress("second")
		second.Spec.ClusterIP = "10.77.0.4"
		Eventually(func() error { return client.Create(ctx, second, ctrlclient.DryRunAll) }).Should(MatchError(ContainSubstring("does not match the current range")))
		killManager(ctx)
		startManager(ctx)
		Consistently(finalizers(ctx, added)).Should(ConsistOf("networking.k8s.io/service-cidr-finalizer"))
		Expect(client.Delete(ctx, withAddress("user"))).To(Succeed())
		eventuallyGone(ctx, &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.77.0.3"}})
		eventuallyGone(ctx, added)
	})
})
