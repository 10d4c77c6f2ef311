package controllers

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("kube-apiserver-serving-clustertrustbundle-publisher", func() {
	It("publishes the API server's authority as the only bundle of its signer", func(ctx SpecContext) {
		const signer = "kubernetes.io/kube-apiserver-serving"
		ns := newNamespace(ctx)
		of := func(format string) string {
			out, _, _ := kubectl.Run(ctx, "", "get", "clustertrustbundles", "--field-selector=spec.signerName="+signer, "-o", format)
			return out
		}
		content := func() string { return of("jsonpath={.items[*].spec.trustBundle}") }
		names := func() string { return strings.TrimSpace(of("name")) }
		Eventually(content).ShouldNot(BeEmpty())
		name, authority := names(), content()
		Eventually(func() string {
			out, _, _ := kubectl.Run(ctx, "", "-n", ns, "get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`)
			return out
		}).Should(Equal(authority))

		run(ctx, "delete", name)
		Eventually(content).Should(Equal(authority))

		By("removing one of earlier certificates, also one from a time without a manager")
		add := func(ctx context.Context, name string) {
			manifest, err := json.Marshal(certificatesv1.ClusterTrustBundle{
				TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle"},
				ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(signer, "/", ":") + ":" + name},
				Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: authority},
			})
			Expect(err).NotTo(HaveOccurred())
			_, errOut, err := kubectl.Run(ctx, string(manifest), "create", "--filename=-")
			Expect(err).NotTo(HaveOccurred(), errOut)
		}
		add(ctx, "earlier")
		Eventually(names).Should(Equal(name))
		killManager(ctx)
		add(ctx, "old")
		startManager(ctx)
		Eventually(names).Should(Equal(name))
	})
})
