package spec

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: lists", Ordered, func() {
	const size = 5
	var (
		path    string // of the namespace's ConfigMaps
		version string // at which all of them exist
	)
	BeforeAll(func(ctx SpecContext) {
		ns := namespace(ctx)
		path = "/api/v1/namespaces/" + ns + "/configmaps"
		for i := range size {
			made, err := client.CoreV1().ConfigMaps(ns).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			version = made.ResourceVersion
		}
		get(ctx, path+"?resourceVersion="+version) // the cache has all of them from here on
	})
	list := func(ctx SpecContext, query string) (meta object, items []any) {
		GinkgoHelper()
		obj := get(ctx, path+"?"+query)
		return obj["metadata"].(object), obj["items"].([]any)
	}

	It("a chunk has up to limit items, and a token while more remain", func(ctx SpecContext) {
		meta, items := list(ctx, "limit=2")
		Expect(items).To(HaveLen(2))
		Expect(meta).To(HaveKeyWithValue("remainingItemCount", BeEquivalentTo(size-2)))
		first := meta["resourceVersion"]
		for _, rest := range []int{2, 1} {
			meta, items = list(ctx, "limit=2&continue="+url.QueryEscape(meta["continue"].(string)))
			Expect(items).To(HaveLen(rest))
			Expect(meta).To(HaveKeyWithValue("resourceVersion", first), "the version is the same across chunks")
		}
		Expect(meta).To(HaveKeyWithValue("continue", ""), "the token is empty when the list is complete")
	})

	It("limit with a version and NotOlderThan is obeyed", func(ctx SpecContext) {
		meta, items := list(ctx, "limit=2&resourceVersionMatch=NotOlderThan&resourceVersion="+version)
		Expect(items).To(HaveLen(2))
		Expect(meta["continue"]).NotTo(BeEmpty())
	})

	It("limit with version 0 and NotOlderThan is obeyed", func(ctx SpecContext) {
		meta, items := list(ctx, "limit=2&resourceVersionMatch=NotOlderThan&resourceVersion=0")
		Expect(items).To(HaveLen(2))
		Expect(meta["continue"]).NotTo(BeEmpty())
	})

	It("limit with version 0 and no match lists everything from the cache, as Kubernetes does", func(ctx SpecContext) {
		meta, items := list(ctx, "limit=2&resourceVersion=0")
		Expect(items).To(HaveLen(size))
		Expect(meta).To(HaveKeyWithValue("continue", ""))
	})

	It("a repeated list has what single gets have", func(ctx SpecContext) {
		ns := namespace(ctx)
		autoscalers := func(version, name string) string {
			return "/apis/autoscaling/" + version + "/namespaces/" + ns + "/horizontalpodautoscalers" + name
		}
		write := func(method, path, contentType, body string) {
			GinkgoHelper()
			resp := send(ctx, launch.Request{Method: method, Path: path, ContentType: contentType, Body: body})
			Expect(resp.Status).To(BeNumerically("<", 300), resp.Body)
		}
		create := func(name string, most int) {
			GinkgoHelper()
			// In v1, behavior is an annotation.
			write("POST", autoscalers("v2", ""), "application/json", fmt.Sprintf(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":%q},
				"spec":{"maxReplicas":%d,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"behavior":{"scaleUp":{"stabilizationWindowSeconds":%d}}}}`, name, most, most))
		}
		expectSame := func(step string) {
			GinkgoHelper()
			for _, version := range []string{"v1", "v2"} {
				for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
					for _, encoding := range []string{"identity", "gzip"} {
						read := func(path string) runtime.Object {
							GinkgoHelper()
							return decoded(send(ctx, launch.Request{Method: "GET", Path: path, Accept: accept, Header: map[string]string{"Accept-Encoding": encoding}}))
						}
						for n := range 3 {
							items, err := meta.ExtractList(read(autoscalers(version, "")))
							Expect(err).NotTo(HaveOccurred())
							Expect(items).To(HaveLen(3))
							for _, item := range items {
								want := read(autoscalers(version, "/"+item.(metav1.Object).GetName()))
								want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // items have none
								Expect(item).To(Equal(want), "%s: list %d of %s as %s, %s", step, n, version, accept, encoding)
							}
						}
					}
				}
			}
		}
		for i, name := range []string{"a", "b", "c"} {
			create(name, i+1)
		}
		expectSame("after creation")
		write("PATCH", autoscalers("v2", "/a"), "application/merge-patch+json", `{"spec":{"behavior":{"scaleUp":{"stabilizationWindowSeconds":30}}}}`)
		write("PATCH", autoscalers("v1", "/b/status"), "application/merge-patch+json", `{"status":{"currentReplicas":2}}`)
		expectSame("after patches")
		write("DELETE", autoscalers("v1", "/c"), "", "")
		create("c", 9)
		expectSame("after deletion and creation")
	})

	It("metadata.continue is in every list, empty when it is complete", func(ctx SpecContext) {
		meta, items := list(ctx, "")
		Expect(items).To(HaveLen(size))
		Expect(meta).To(HaveKeyWithValue("continue", ""))
		for _, path := range []string{
			"/api/v1/pods", "/api/v1/namespaces/none/secrets", "/apis/apps/v1/deployments", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
			definitions, "/apis/apiregistration.k8s.io/v1/apiservices", define(ctx, "continued", ""),
		} {
			Expect(metadataOf(get(ctx, path))).To(HaveKeyWithValue("continue", ""), path)
		}
	})

	DescribeTable("what the table of list semantics calls invalid is refused",
		func(ctx SpecContext, query string, code int) {
			failed(send(ctx, launch.Request{Method: "GET", Path: path + "?" + query}), code)
		},
		Entry("a match without a version", "resourceVersionMatch=NotOlderThan", 422),
		Entry("Exact without a version", "resourceVersionMatch=Exact", 422),
		Entry("Exact at version 0", "resourceVersionMatch=Exact&resourceVersion=0", 422),
		Entry("Exact with limit at version 0", "resourceVersionMatch=Exact&resourceVersion=0&limit=2", 422),
		Entry("an unknown match", "resourceVersionMatch=Newest&resourceVersion=1", 422),
	)
})

// decoded returns the object in a response, which may be compressed.
func decoded(resp launch.Response) runtime.Object {
	GinkgoHelper()
	Expect(resp.Status).To(Equal(200), resp.Body)
	content := []byte(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		reader, err := gzip.NewReader(strings.NewReader(resp.Body))
		Expect(err).NotTo(HaveOccurred())
		content, err = io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
	}
	obj, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	return obj
}
