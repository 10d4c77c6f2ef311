package spec

import (
	"fmt"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
