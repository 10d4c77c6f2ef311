package spec

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 2: topology changes of a field without a new version", func() {
	const (
		granular = `{"type":"object","properties":{"list":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},"map":{"type":"object","x-kubernetes-map-type":"granular","additionalProperties":{"type":"string"}}}}`
		atomic   = `{"type":"object","properties":{"list":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},"map":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}}}}`
	)
	apply := func(ctx context.Context, path, name, manager, spec string) launch.Response {
		GinkgoHelper()
		group, _, _ := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/")
		return send(ctx, launch.Request{
			Method: "PATCH", Path: path + "/" + name + "?fieldManager=" + manager, ContentType: applyPatch,
			Body: `{"apiVersion":"` + group + `/v1","kind":"Thing","spec":` + spec + `}`,
		})
	}
	// change replaces the schema, and waits until it is used: the marker of a probe.
	change := func(ctx context.Context, name, path, schema string, probe func(g Gomega)) {
		GinkgoHelper()
		parse(send(ctx, launch.Request{Method: "PATCH", Path: definitions + "/things." + name + ".example.com", ContentType: mergePatch,
			Body: `{"spec":{"versions":[` + version("v1", true, "", schema) + `]}}`}), 200)
		Eventually(ctx, probe).Should(Succeed())
	}
	const one, two, both = `{"list":["a"],"map":{"a":"1"}}`, `{"list":["b"],"map":{"b":"1"}}`, `{"list":["a","b"],"map":{"a":"1","b":"1"}}`

	It("what becomes atomic is owned by each manager of an element, and another value conflicts", func(ctx SpecContext) {
		path := defineSpec(ctx, "toatomic", "", granular)
		for _, name := range []string{"t", "probe"} {
			parse(apply(ctx, path, name, "one", one), 201)
			parse(apply(ctx, path, name, "two", two), 200)
		}
		attempts := 0
		change(ctx, "toatomic", path, atomic, func(g Gomega) {
			attempts++ // Before the change each attempt is applied, and the same value would not conflict after it.
			resp := apply(ctx, path, "probe", "two", fmt.Sprintf(`{"list":["a","b","%d"],"map":{"a":"1","b":"1","c":"%[1]d"}}`, attempts))
			g.Expect(resp.Status).To(Equal(409), resp.Body)
			g.Expect(resp.Body).To(And(ContainSubstring(".spec.list"), ContainSubstring(".spec.map"), ContainSubstring(`conflict with \"one\"`)))
		})
		parse(apply(ctx, path, "t", "two", both), 200)
		Expect(apply(ctx, path, "t", "two", one).Status).To(Equal(409))
	})

	It("what becomes granular does not conflict, and its former owner keeps the field but not its elements", func(ctx SpecContext) {
		path := defineSpec(ctx, "togranular", "", atomic)
		parse(apply(ctx, path, "t", "one", one), 201)
		parse(apply(ctx, path, "probe", "one", one), 201)
		change(ctx, "togranular", path, granular, func(g Gomega) {
			resp := apply(ctx, path, "probe", "two", two)
			g.Expect(resp.Status).To(Equal(200), resp.Body)
		})
		changed := parse(apply(ctx, path, "t", "two", `{"list":["b"],"map":{"a":"2"}}`), 200)
		Expect(changed["spec"]).To(HaveKeyWithValue("map", HaveKeyWithValue("a", "2")), "no conflict, though another value")
		for _, entry := range metadataOf(changed)["managedFields"].([]any) {
			if entry := entry.(object); entry["manager"] == "one" {
				fields := entry["fieldsV1"].(object)["f:spec"].(object)
				Expect(fields).To(And(HaveKeyWithValue("f:list", BeEmpty()), HaveKeyWithValue("f:map", BeEmpty())))
			}
		}
	})
})
