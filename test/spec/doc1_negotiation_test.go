package spec

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

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

var _ = Describe("Document 1, naming convention and section 4: identifiers with the brand", func() {
	discovery := func(ctx SpecContext, path, group, version string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "GET", Path: path, Accept: "application/json;g=" + group + ";v=" + version + ";as=APIGroupDiscoveryList"})
	}

	It("a table has the group of the request", func(ctx SpecContext) {
		for _, group := range []string{"meta.k8s.io", "meta.svc.dev"} {
			resp := send(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces", Accept: "application/json;as=Table;g=" + group + ";v=v1"})
			table := parse(resp, 200)
			Expect(table).To(HaveKeyWithValue("kind", "Table"))
			Expect(table).To(HaveKeyWithValue("apiVersion", group+"/v1"))
			row := table["rows"].([]any)[0].(object)["object"]
			Expect(row).To(HaveKeyWithValue("apiVersion", group+"/v1"))
		}
	})

	It("metadata in protobuf has the group of the request", func(ctx SpecContext) {
		for _, group := range []string{"meta.k8s.io", "meta.svc.dev"} {
			resp := send(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces",
				Accept: "application/vnd.svc.protobuf;as=PartialObjectMetadataList;g=" + group + ";v=v1"})
			Expect(resp.Status).To(Equal(200), resp.Body)
			Expect(resp.Header.Get("Content-Type")).To(Equal("application/vnd.svc.protobuf"))
			prefix, content := resp.Body[:4], []byte(resp.Body[4:])
			Expect(prefix).To(Equal("k8s\x00"))
			var envelope runtime.Unknown
			Expect(envelope.Unmarshal(content)).To(Succeed())
			Expect(envelope.TypeMeta).To(Equal(runtime.TypeMeta{APIVersion: group + "/v1", Kind: "PartialObjectMetadataList"}))
		}
	})

	DescribeTable("aggregated discovery has the group and the version of the request",
		func(ctx SpecContext, group, version string) {
			for _, path := range []string{"/api", "/apis"} {
				resp := discovery(ctx, path, group, version)
				list := parse(resp, 200)
				Expect(list).To(HaveKeyWithValue("kind", "APIGroupDiscoveryList"))
				Expect(list).To(HaveKeyWithValue("apiVersion", group+"/"+version))
				Expect(list["items"]).NotTo(BeEmpty())
				Expect(resp.Header.Get("Content-Type")).To(Equal("application/json;g=" + group + ";v=" + version + ";as=APIGroupDiscoveryList"))
			}
		},
		Entry(nil, "apidiscovery.k8s.io", "v2"),
		Entry(nil, "apidiscovery.k8s.io", "v2beta1"),
		Entry(nil, "apidiscovery.svc.dev", "v2"),
		Entry(nil, "apidiscovery.svc.dev", "v2beta1"),
	)

	It("406 and 415 name both protobuf media types", func(ctx SpecContext) {
		const both = "application/vnd.kubernetes.protobuf, application/vnd.svc.protobuf"
		Expect(failed(send(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces", Accept: "text/html"}), 406).Message).To(ContainSubstring(both))
		Expect(failed(send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces", ContentType: "text/html", Body: "x"}), 415).Message).To(ContainSubstring(both))
	})

	It("the response to a schema has its extensions as they were written", func(ctx SpecContext) {
		for _, spelling := range []string{"x-svc-", "x-kubernetes-"} {
			resp := send(ctx, launch.Request{Method: "POST", Path: definitions + "?dryRun=All", ContentType: "application/json", Body: `{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.echo.example.com"},
				"spec": {"group": "echo.example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
					"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "` + spelling + `map-type": "atomic",
						"properties": {"a": {"type": "array", "` + spelling + `list-type": "set", "items": {"type": "string"}}}}}}]}}`})
			Expect(resp.Status).To(Equal(201), resp.Body)
			Expect(resp.Body).To(ContainSubstring(`"` + spelling + `list-type":"set"`))
			Expect(resp.Body).To(ContainSubstring(`"` + spelling + `map-type":"atomic"`))
		}
	})
})
