package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("serviceaccount", func() {
	It("creates the default service account of every namespace, also after its deletion", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		account := func() (string, error) {
			sa := &corev1.ServiceAccount{}
			err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: ns, Name: "default"}, sa)
			return string(sa.UID), err
		}
		Eventually(account).ShouldNot(BeEmpty())
		first, err := account()
		Expect(err).NotTo(HaveOccurred())
		run(ctx, "-n", ns, "delete", "serviceaccount", "default")
		Eventually(account).ShouldNot(Or(BeEmpty(), Equal(first)))

		By("making those that were deleted while no manager ran")
		killManager(ctx)
		run(ctx, "-n", ns, "delete", "serviceaccount", "default")
		startManager(ctx)
		Eventually(account).ShouldNot(BeEmpty())
	})
})
