package spec

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 9: lifetimes of versions", func() {
	served := func(ctx SpecContext, path string) int {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "GET", Path: path}).Status
	}
	DescribeTable("a version that was removed is not served, and the one to migrate to is",
		func(ctx SpecContext, removed, now string) {
			Expect(served(ctx, "/apis/"+removed)).To(Equal(404), "removed")
			Expect(served(ctx, "/apis/"+now)).To(Equal(200), "its replacement")
		},
		Entry(nil, "storage.k8s.io/v1beta1", "storage.k8s.io/v1/csistoragecapacities"),
		Entry(nil, "flowcontrol.apiserver.k8s.io/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"),
		Entry(nil, "autoscaling/v2beta2", "autoscaling/v2/horizontalpodautoscalers"),
		Entry(nil, "autoscaling/v2beta1", "autoscaling/v2/horizontalpodautoscalers"),
		Entry(nil, "batch/v1beta1", "batch/v1/cronjobs"),
		Entry(nil, "discovery.k8s.io/v1beta1", "discovery.k8s.io/v1/endpointslices"),
		Entry(nil, "events.k8s.io/v1beta1", "events.k8s.io/v1/events"),
		Entry(nil, "policy/v1beta1", "policy/v1/poddisruptionbudgets"),
		Entry(nil, "node.k8s.io/v1beta1", "node.k8s.io/v1/runtimeclasses"),
		Entry(nil, "admissionregistration.k8s.io/v1beta1/mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
		Entry(nil, "apiextensions.k8s.io/v1beta1", "apiextensions.k8s.io/v1/customresourcedefinitions"),
		Entry(nil, "apiregistration.k8s.io/v1beta1", "apiregistration.k8s.io/v1/apiservices"),
		Entry(nil, "authentication.k8s.io/v1beta1/tokenreviews", "authentication.k8s.io/v1"),
		Entry(nil, "authorization.k8s.io/v1beta1", "authorization.k8s.io/v1"),
		Entry(nil, "certificates.k8s.io/v1beta1", "certificates.k8s.io/v1/certificatesigningrequests"),
		Entry(nil, "coordination.k8s.io/v1beta1", "coordination.k8s.io/v1/leases"),
		Entry(nil, "extensions/v1beta1", "networking.k8s.io/v1/ingresses"),
		Entry(nil, "networking.k8s.io/v1beta1", "networking.k8s.io/v1/ingressclasses"),
		Entry(nil, "rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1/clusterroles"),
		Entry(nil, "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1/priorityclasses"),
		Entry(nil, "apps/v1beta1", "apps/v1/statefulsets"),
		Entry(nil, "apps/v1beta2", "apps/v1/daemonsets"),
	)
	It("a version that the next release removes is served, with a warning that names its replacement", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "GET", Path: "/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas"})
		Expect(resp.Status).To(Equal(200))
		Expect(resp.Header.Get("Warning")).To(And(HavePrefix("299 "), ContainSubstring("v1.26+"), ContainSubstring("v1.29+"), ContainSubstring("v1beta3")))
	})
	It("alpha versions are disabled by default", func(ctx SpecContext) {
		for _, version := range []string{"admissionregistration.k8s.io/v1alpha1", "authentication.k8s.io/v1alpha1", "certificates.k8s.io/v1alpha1", "networking.k8s.io/v1alpha1", "resource.k8s.io/v1alpha2"} {
			Expect(served(ctx, "/apis/"+version)).To(Equal(404), version)
		}
	})
	It("the preferred version of a group is not less stable than another of its versions", func(ctx SpecContext) {
		for _, group := range get(ctx, "/apis")["groups"].([]any) {
			preferred := group.(object)["preferredVersion"].(object)["version"].(string)
			for _, v := range group.(object)["versions"].([]any) {
				other := v.(object)["version"].(string)
				Expect(stability(preferred)).To(BeNumerically(">=", stability(other)), "%s: %s and %s", group.(object)["name"], preferred, other)
			}
		}
	})
})

// stability orders versions: alpha, beta, stable.
func stability(version string) int {
	switch {
	case strings.Contains(version, "alpha"):
		return 0
	case strings.Contains(version, "beta"):
		return 1
	}
	return 2
}
