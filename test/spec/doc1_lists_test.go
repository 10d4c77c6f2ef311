package spec

import (
	. "github.com/onsi/ginkgo/v2"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: lists", func() {
	const path = "/api/v1/namespaces/default/configmaps"

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
