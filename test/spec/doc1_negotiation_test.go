package spec

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: content negotiation", func() {
	const path = "/api/v1/namespaces/default"
	accepting := func(ctx SpecContext, path, accept string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "GET", Path: path, Accept: accept})
	}

	DescribeTable("the media type is the one that the client prefers",
		func(ctx SpecContext, accept, want string) {
			resp := accepting(ctx, path, accept)
			Expect(resp.Status).To(Equal(200), resp.Body)
			Expect(resp.Header.Get("Content-Type")).To(Equal(want))
		},
		Entry("JSON by default", "", "application/json"),
		Entry("any of application", "application/*", "application/json"),
		Entry("any", "*/*", "application/json"),
		Entry("in upper case", "APPLICATION/YAML", "application/yaml"),
		Entry("the document's protobuf, in upper case", "Application/Vnd.Svc.Protobuf", "application/vnd.svc.protobuf"),
		Entry("the one of the higher weight", "application/json;q=0.2, application/yaml;q=0.8", "application/yaml"),
		Entry("the first that is supported", "text/html, application/yaml, application/json", "application/yaml"),
		Entry("any but one", "application/json;q=0, application/*", "application/yaml"),
	)

	DescribeTable("none of the requested media types is supported: 406",
		func(ctx SpecContext, accept string) {
			failed(accepting(ctx, path, accept), 406)
		},
		Entry("an unknown one", "text/html"),
		Entry("one that is refused", "application/json;q=0"),
	)

	DescribeTable("every endpoint takes ranges and upper case",
		func(ctx SpecContext, path string) {
			for _, accept := range []string{"application/*", "APPLICATION/JSON", "application/json;q=0.1"} {
				resp := accepting(ctx, path, accept)
				Expect(resp.Status).To(Equal(200), "%s: %s", accept, resp.Body)
				Expect(resp.Header.Get("Content-Type")).To(HavePrefix("application/json"), accept)
			}
		},
		Entry("discovery", "/apis"),
		Entry("a group version", "/apis/apps/v1"),
		Entry("the version", "/version"),
		Entry("OpenAPI version 2", "/openapi/v2"),
		Entry("OpenAPI version 3", "/openapi/v3/apis/apps/v1"),
		Entry("definitions of custom resources", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
	)

	It("the content type of a body may be in upper case", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PATCH", Path: path, ContentType: "Application/Merge-Patch+JSON", Body: `{}`})
		Expect(resp.Status).To(Equal(200), resp.Body)
	})

	DescribeTable("Accept-Encoding: gzip compresses get and list",
		func(ctx SpecContext, path string) {
			resp := send(ctx, launch.Request{Method: "GET", Path: path, Header: map[string]string{"Accept-Encoding": "gzip"}})
			Expect(resp.Status).To(Equal(200))
			Expect(resp.Header.Get("Content-Encoding")).To(Equal("gzip"))
			reader, err := gzip.NewReader(strings.NewReader(resp.Body))
			Expect(err).NotTo(HaveOccurred())
			content, err := io.ReadAll(reader)
			Expect(err).NotTo(HaveOccurred())
			Expect(bytes.HasPrefix(content, []byte(`{"kind":"`))).To(BeTrue(), "%s", content)
		},
		Entry("an object", path),
		Entry("a list", "/api/v1/namespaces"),
		Entry("a list of definitions", "/apis/apiregistration.k8s.io/v1/apiservices"),
	)
})
