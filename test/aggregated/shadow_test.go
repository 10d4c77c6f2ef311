package aggregated

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("a domain of which the host serves a group already", func() {
	It("is refused by the API server, which changes nothing", func(ctx SpecContext) {
		const name = "v1alpha3.networking.taken.example.com"
		apply(onHost, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"`+name+`"},
			"spec":{"group":"networking.taken.example.com","version":"v1alpha3","groupPriorityMinimum":100,"versionPriority":15}}`, "create")
		DeferCleanup(kubectl, onHost, "delete", "apiservice", name)
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		p, err := launch.Start(nil, binary, "apiserver", "--etcd-servers="+host.etcd, "--etcd-prefix=/taken", "--cert-dir="+dir, "--secure-port=1",
			"--group-domain=taken.example.com", "--host-kubeconfig="+host.kubeconfig, "--serving-secret=svc-system/taken", "--serving-service=svc")
		Expect(err).NotTo(HaveOccurred())
		code, err := p.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(1))
		Expect(p.Output()).To(ContainSubstring("--group-domain=taken.example.com: networking.taken.example.com is served by the host itself already (APIService " + name + ")"))
		Expect(kubectl(onHost, "get", "secret", "taken", "-n", "svc-system", "--ignore-not-found")).To(BeEmpty())
	})
})
