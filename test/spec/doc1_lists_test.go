package spec

import (
	. "github.com/onsi/ginkgo/v2"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: lists", func() {
	const path = "/api/v1/namespaces/default/configmaps"

	DescribeTable("the versions and tokens that do not go together are answered with 400",
		func(ctx SpecContext, query string) {
			failed(send(ctx, launch.Request{Method: "GET", Path: path + "?" + query}), 400)
		},
		Entry("a match without a version", "resourceVersionMatch=NotOlderThan"),
		Entry("Exact without a version", "resourceVersionMatch=Exact"),
		Entry("Exact at version 0", "resourceVersionMatch=Exact&resourceVersion=0"),
	)
})
