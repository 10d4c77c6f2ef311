package spec

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 4: health endpoints", func() {
	// text returns the body of a response with status 200. A busy server may be unhealthy for
	// a moment.
	text := func(ctx SpecContext, path string) string {
		GinkgoHelper()
		var resp launch.Response
		Eventually(ctx, func(g Gomega) {
			resp = send(ctx, launch.Request{Method: "GET", Path: path})
			g.Expect(resp.Status).To(Equal(200), "%s: %s", path, resp.Body)
		}).Should(Succeed())
		return resp.Body
	}
	// checks returns the names of an endpoint's checks: the token between [+] and ok.
	checks := func(ctx SpecContext, path string) []string {
		GinkgoHelper()
		var names []string
		for _, found := range regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`).FindAllStringSubmatch(text(ctx, path+"?verbose"), -1) {
			names = append(names, found[1])
		}
		return names
	}

	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		Describe(path, func() {
			It("has the checks that the document shows", func(ctx SpecContext) {
				Expect(checks(ctx, path)).To(ContainElements(
					"ping", "log", "etcd", "autoregister-completion",
					"poststarthook/start-svc-apiserver-admission-initializer",
					"poststarthook/generic-apiserver-start-informers",
					"poststarthook/start-apiextensions-informers",
					"poststarthook/start-apiextensions-controllers",
					"poststarthook/crd-informer-synced",
					"poststarthook/bootstrap-controller",
					"poststarthook/rbac/bootstrap-roles",
					"poststarthook/scheduling/bootstrap-system-priority-classes",
					"poststarthook/start-cluster-authentication-info-controller",
					"poststarthook/start-svc-aggregator-informers",
					"poststarthook/apiservice-registration-controller",
					"poststarthook/apiservice-status-available-controller",
					"poststarthook/svc-apiserver-autoregistration",
					"poststarthook/apiservice-openapi-controller",
				))
			})

			It("ends a verbose answer with the line of the document", func(ctx SpecContext) {
				Expect(text(ctx, path+"?verbose")).To(HaveSuffix("\nhealthz check passed\n"))
			})

			It("serves each check by itself", func(ctx SpecContext) {
				names := checks(ctx, path)
				Expect(names).NotTo(BeEmpty())
				for _, name := range names {
					Expect(text(ctx, path+"/"+name)).To(Equal("ok"), name)
				}
			})

			It("excludes any check", func(ctx SpecContext) {
				names := checks(ctx, path)
				answer := text(ctx, path+"?verbose&exclude="+strings.Join(names, "&exclude="))
				for _, name := range names {
					Expect(answer).To(ContainSubstring("[+]" + name + " excluded: ok\n"))
				}
				Expect(answer).NotTo(ContainSubstring("cannot be excluded"))
			})
		})
	}

	It("only the readiness has a check of the shutdown", func(ctx SpecContext) {
		Expect(checks(ctx, "/readyz")).To(ContainElement("shutdown"))
		Expect(checks(ctx, "/livez")).NotTo(ContainElement("shutdown"))
	})
})
