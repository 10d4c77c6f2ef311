package controllers

import (
	"crypto/x509"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("root-ca-cert-publisher", func() {
	It("publishes the API server's authority in every namespace, and corrects it", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		published := func() string {
			out, _, _ := kubectl.Run(ctx, "", "-n", ns, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
			return out
		}
		Eventually(published).ShouldNot(BeEmpty())
		authority := published()
		Expect(x509.NewCertPool().AppendCertsFromPEM([]byte(authority))).To(BeTrue(), authority)

		run(ctx, "-n", ns, "patch", "configmap", "kube-root-ca.crt", "-p", `{"data":{"ca.crt":"forged"}}`)
		Eventually(published).Should(Equal(authority))
		run(ctx, "-n", ns, "delete", "configmap", "kube-root-ca.crt")
		Eventually(published).Should(Equal(authority))

		By("correcting what was changed while no manager ran")
		killManager(ctx)
		run(ctx, "-n", ns, "patch", "configmap", "kube-root-ca.crt", "-p", `{"data":{"ca.crt":"forged"}}`)
		startManager(ctx)
		Eventually(published).Should(Equal(authority))
	})
})
