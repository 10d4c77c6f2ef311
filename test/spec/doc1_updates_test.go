package spec

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 1: a PUT creates or updates", func() {
	const path = "/api/v1/namespaces/default/limitranges"

	It("a PUT creates a LimitRange that does not exist", func(ctx SpecContext) {
		put := launch.Request{Method: "PUT", Path: path + "/put", ContentType: "application/json",
			Body: `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"put"},"spec":{"limits":[]}}`}
		Expect(parse(send(ctx, put), 201)["metadata"]).To(HaveKeyWithValue("name", "put"))
		Expect(send(ctx, put).Status).To(Equal(200), "and updates it then")
	})

	It("a LimitRange without a name is named after its UID", func(ctx SpecContext) {
		meta := create(ctx, path, `{"apiVersion":"v1","kind":"LimitRange","spec":{"limits":[]}}`)["metadata"].(object)
		Expect(meta["name"]).NotTo(BeEmpty())
		Expect(meta["name"]).To(Equal(meta["uid"]))
	})
})
