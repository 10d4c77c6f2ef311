package spec

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// refused starts a server with flags that it must refuse, and returns what it says.
func refused(ctx context.Context, flags ...string) string {
	GinkgoHelper()
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	port, err := launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	process, err := launch.Start(nil, binary, append([]string{"up", "--data-dir=" + filepath.Join(dir, "data"), "--secure-port=" + port, "--node=false"}, flags...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Kill)
	Eventually(ctx, process.Exited()).Should(BeClosed(), process.Output)
	return process.Output()
}

var _ = Describe("Document 1, section 9: versions are disabled by --runtime-config", func() {
	It("a disabled version of custom resources serves neither definitions nor their objects", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		for _, config := range []string{"apiextensions.k8s.io/v1=false", "api/all=false,apiregistration.k8s.io/v1=true,v1=true"} {
			s := up(ctx, filepath.Join(dir, config[:5]), "--runtime-config="+config)
			status, _, err := s.Get(ctx, definitions)
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(404), config)
			status, groups, err := s.Get(ctx, "/apis")
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(200))
			Expect(groups).NotTo(ContainSubstring("apiextensions"), config)
			status, _, err = s.Get(ctx, "/api/v1/namespaces/default")
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(200), "what is not disabled is served")
		}
	})

	It("the aggregation layer is not to be disabled, and the refusal says so in one line", func(ctx SpecContext) {
		for _, config := range []string{"apiregistration.k8s.io/v1=false", "api/all=false,v1=true", "api/ga=false"} {
			said := refused(ctx, "--runtime-config="+config)
			Expect(said).To(ContainSubstring("--runtime-config: apiregistration.k8s.io/v1 cannot be disabled"), config)
			Expect(strings.Count(said, "--runtime-config")).To(Equal(1), said)
		}
	})

	DescribeTable("a feature gate that svc does not offer is refused",
		func(ctx SpecContext, gate string) {
			Expect(refused(ctx, "--feature-gates="+gate+"=true")).To(ContainSubstring("--feature-gates: " + gate + " is not supported: "))
		},
		Entry(nil, "StorageVersionAPI"),
		Entry(nil, "CBORServingAndStorage"),
	)
})
