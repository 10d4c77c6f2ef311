package spec

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 2: tables", func() {
	// columns returns the names and types of the columns of a table.
	columns := func(ctx SpecContext, path string) (names, types []any) {
		GinkgoHelper()
		table := parse(send(ctx, launch.Request{Method: "GET", Path: path, Accept: "application/json;as=Table;g=meta.k8s.io;v=v1"}), 200)
		Expect(table).To(HaveKeyWithValue("kind", "Table"))
		Expect(table).To(HaveKeyWithValue("apiVersion", "meta.k8s.io/v1"))
		for _, column := range table["columnDefinitions"].([]any) {
			names = append(names, column.(object)["name"])
			types = append(types, column.(object)["type"])
		}
		return names, types
	}

	DescribeTable("a type without columns of its own shows Name and Created At",
		func(ctx SpecContext, path string) {
			names, types := columns(ctx, path)
			Expect(names).To(HaveExactElements("Name", "Created At"))
			Expect(types).To(HaveExactElements("string", "date"))
		},
		Entry("a built-in one", "/api/v1/limitranges"),
		Entry("a cluster-scoped one", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
	)

	It("a custom resource without columns of its own shows Name and Created At", func(ctx SpecContext) {
		path := define(ctx, "plain", "")
		create(ctx, path, `{"apiVersion":"plain.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
		names, types := columns(ctx, path)
		Expect(names).To(HaveExactElements("Name", "Created At"))
		Expect(types).To(HaveExactElements("string", "date"))
		definition := get(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.plain.example.com")
		Expect(definition["spec"].(object)["versions"].([]any)[0]).NotTo(HaveKey("additionalPrinterColumns"))
	})

	It("a custom resource with columns of its own shows these", func(ctx SpecContext) {
		names, _ := columns(ctx, define(ctx, "columned", `"additionalPrinterColumns":[{"name":"UID","type":"string","jsonPath":".metadata.uid"}],`))
		Expect(names).To(HaveExactElements("Name", "UID"))
	})
})
