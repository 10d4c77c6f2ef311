package spec

import (
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

var _ = Describe("OpenAPI version 3", func() {
	// urls returns the URL of each document.
	urls := func(ctx SpecContext) map[string]string {
		GinkgoHelper()
		all := map[string]string{}
		for path, entry := range get(ctx, "/openapi/v3")["paths"].(object) {
			all[path] = entry.(object)["serverRelativeURL"].(string)
		}
		return all
	}

	It("each group version has a hash of its own", func(ctx SpecContext) {
		owner := map[string]string{}
		for path, u := range urls(ctx) {
			_, hash, found := strings.Cut(u, "?hash=")
			Expect(found).To(BeTrue(), u)
			Expect(owner).NotTo(HaveKey(hash), "%s has the hash of %s", path, owner[hash])
			owner[hash] = path
		}
	})

	It("a document of the index is served without a redirect, to be kept", func(ctx SpecContext) {
		config := rest.CopyConfig(server.Config)
		client, err := rest.HTTPClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		served := func(g Gomega, path, u string) {
			for range 3 { // several servers of the chain may have a document of the same name
				req, err := http.NewRequestWithContext(ctx, http.MethodHead, config.Host+u, nil)
				g.Expect(err).NotTo(HaveOccurred())
				resp, err := client.Do(req)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(resp.Body.Close()).To(Succeed())
				g.Expect(resp.StatusCode).To(Equal(200), path)
				g.Expect(resp.Header.Get("Cache-Control")).To(ContainSubstring("immutable"), path)
			}
		}
		for path := range urls(ctx) {
			// The definitions of other specs end meanwhile: then the index has another hash
			// for the document, or no document.
			Eventually(func(g Gomega) {
				if u, found := urls(ctx)[path]; found {
					served(g, path, u)
				}
			}).Should(Succeed())
		}
	})

	It("a document with another hash is redirected to the one of the index", func(ctx SpecContext) {
		config := rest.CopyConfig(server.Config)
		client, err := rest.HTTPClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		want := urls(ctx)["apis/apps/v1"]
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/openapi/v3/apis/apps/v1?hash=old", nil)
		Expect(err).NotTo(HaveOccurred())
		resp, err := client.Do(req)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.StatusCode).To(Equal(301))
		got, err := url.Parse(resp.Header.Get("Location"))
		Expect(err).NotTo(HaveOccurred())
		Expect(got.RequestURI()).To(Equal(want))
	})

	It("a new version of a definition has another hash", func(ctx SpecContext) {
		path := define(ctx, "hashed", "")
		document := strings.TrimPrefix(path[:strings.Index(path, "/namespaces/")], "/")
		var first string
		Eventually(func() string { first = urls(ctx)[document]; return first }).ShouldNot(BeEmpty())
		resp := send(ctx, launch.Request{Method: "PATCH", Path: definitions + "/things.hashed.example.com", ContentType: "application/json-patch+json",
			Body: `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"another"}]`})
		Expect(resp.Status).To(Equal(200), resp.Body)
		Eventually(func() string { return urls(ctx)[document] }).ShouldNot(Equal(first))
	})
})
