package spec

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 4: server-side apply", Ordered, func() {
	// kinds are a built-in kind and a custom one: other handlers serve it.
	for _, kind := range []string{"ConfigMap", "Thing"} {
		Describe(kind, Ordered, func() {
			var collection, typeMeta string
			member := map[string]string{"ConfigMap": "data", "Thing": "spec"}[kind]
			BeforeAll(func(ctx SpecContext) {
				collection, typeMeta = "/api/v1/namespaces/"+namespace(ctx)+"/configmaps", `"apiVersion":"v1","kind":"ConfigMap"`
				if kind == "Thing" {
					collection = define(ctx, "applied", "")
					typeMeta = `"apiVersion":"applied.example.com/v1","kind":"Thing"`
				}
			})
			apply := func(ctx context.Context, name, query, fields string) launch.Response {
				GinkgoHelper()
				return send(ctx, launch.Request{
					Method: "PATCH", Path: collection + "/" + name + "?" + query, ContentType: applyPatch,
					Body: fmt.Sprintf(`{%s,%q:%s}`, typeMeta, member, fields),
				})
			}
			fieldsOf := func(ctx context.Context, name string) any {
				GinkgoHelper()
				return get(ctx, collection+"/"+name)[member]
			}

			It("fieldManager is required", func(ctx SpecContext) {
				Expect(failed(apply(ctx, "none", "", `{}`), 422).Message).To(ContainSubstring("fieldManager"))
			})
			It("creates an object that does not exist, from a body of apiVersion and kind", func(ctx SpecContext) {
				resp := send(ctx, launch.Request{Method: "PATCH", Path: collection + "/minimal?fieldManager=m", ContentType: applyPatch, Body: `{` + typeMeta + `}`})
				Expect(metadataOf(parse(resp, 201))).To(HaveKeyWithValue("name", "minimal"))
			})
			It("takes YAML", func(ctx SpecContext) {
				resp := send(ctx, launch.Request{Method: "PATCH", Path: collection + "/minimal?fieldManager=m", ContentType: applyPatch, Body: "{" + typeMeta + "}\n# a comment\n"})
				parse(resp, 200)
			})
			It("another value of another manager's field is a conflict, which names both, and is forced by force", func(ctx SpecContext) {
				parse(apply(ctx, "conflict", "fieldManager=one", `{"a":"1"}`), 201)
				status := failed(apply(ctx, "conflict", "fieldManager=two", `{"a":"2"}`), 409)
				Expect(status.Reason).To(Equal(metav1.StatusReasonConflict))
				Expect(status.Details.Causes).To(HaveLen(1))
				Expect(status.Details.Causes[0].Field).To(Equal("." + member + ".a"))
				Expect(status.Message).To(ContainSubstring(`"one"`))
				Expect(fieldsOf(ctx, "conflict")).To(HaveKeyWithValue("a", "1"))
				parse(apply(ctx, "conflict", "fieldManager=two&force=true", `{"a":"2"}`), 200)
				Expect(fieldsOf(ctx, "conflict")).To(HaveKeyWithValue("a", "2"))
				failed(apply(ctx, "conflict", "fieldManager=one", `{"a":"3"}`), 409) // two is the sole owner
			})
			It("equal values are shared, and a change by either of the owners is a conflict", func(ctx SpecContext) {
				parse(apply(ctx, "shared", "fieldManager=one", `{"a":"1"}`), 201)
				parse(apply(ctx, "shared", "fieldManager=two", `{"a":"1"}`), 200)
				failed(apply(ctx, "shared", "fieldManager=one", `{"a":"2"}`), 409)
				failed(apply(ctx, "shared", "fieldManager=two", `{"a":"2"}`), 409)
			})
			It("a manager gives up a shared field by an apply without it, and the value stays", func(ctx SpecContext) {
				parse(apply(ctx, "given-up", "fieldManager=one", `{"a":"1","b":"1"}`), 201)
				parse(apply(ctx, "given-up", "fieldManager=two", `{"a":"1"}`), 200)
				parse(apply(ctx, "given-up", "fieldManager=one", `{"b":"1"}`), 200)
				Expect(fieldsOf(ctx, "given-up")).To(And(HaveKeyWithValue("a", "1"), HaveKeyWithValue("b", "1")))
				parse(apply(ctx, "given-up", "fieldManager=two", `{"a":"2"}`), 200) // its own now
			})
			It("a field that is no longer applied, and that no other manager owns, is deleted", func(ctx SpecContext) {
				parse(apply(ctx, "removed", "fieldManager=one", `{"a":"1","b":"1"}`), 201)
				parse(apply(ctx, "removed", "fieldManager=one", `{"b":"1"}`), 200)
				Expect(fieldsOf(ctx, "removed")).NotTo(HaveKey("a"))
			})
			It("an update owns what it changes, and never fails for a conflict", func(ctx SpecContext) {
				parse(apply(ctx, "updated", "fieldManager=one", `{"a":"1"}`), 201)
				obj := get(ctx, collection+"/updated")
				resp := send(ctx, launch.Request{
					Method: "PUT", Path: collection + "/updated", ContentType: inJSON, Header: map[string]string{"User-Agent": "updater/v1 (linux)"},
					Body: fmt.Sprintf(`{%s,"metadata":{"name":"updated","resourceVersion":%q},%q:{"a":"2"}}`, typeMeta, metadataOf(obj)["resourceVersion"], member),
				})
				entries := metadataOf(parse(resp, 200))["managedFields"].([]any)
				Expect(entries).To(ContainElement(And(HaveKeyWithValue("manager", "updater"), HaveKeyWithValue("operation", "Update"), HaveKeyWithValue("fieldsType", "FieldsV1"))))
				failed(apply(ctx, "updated", "fieldManager=one", `{"a":"1"}`), 409)
			})
			It("a manager that owns no fields is deleted", func(ctx SpecContext) {
				parse(apply(ctx, "transferred", "fieldManager=one", `{"a":"1"}`), 201)
				parse(apply(ctx, "transferred", "fieldManager=temporary", `{"a":"1"}`), 200)
				resp := send(ctx, launch.Request{Method: "PATCH", Path: collection + "/transferred?fieldManager=temporary", ContentType: applyPatch, Body: `{` + typeMeta + `}`})
				obj := parse(resp, 200)
				Expect(metadataOf(obj)["managedFields"]).To(ConsistOf(HaveKeyWithValue("manager", "one")))
				Expect(obj[member]).To(HaveKeyWithValue("a", "1"))
				parse(apply(ctx, "transferred", "fieldManager=one", `{"a":"2"}`), 200)
			})
		})
	}

	It("an apply whose result is invalid is refused", func(ctx SpecContext) {
		path := "/api/v1/namespaces/" + namespace(ctx) + "/configmaps"
		failed(send(ctx, launch.Request{Method: "PATCH", Path: path + "/x?fieldManager=m", ContentType: applyPatch, Body: configMap("", `{"not a key":"1"}`)}), 422)
		Expect(send(ctx, launch.Request{Method: "GET", Path: path + "/x"}).Status).To(Equal(404))
	})
	It("a field that is no longer applied gets its default", func(ctx SpecContext) {
		path := "/api/v1/namespaces/" + namespace(ctx) + "/services/s?fieldManager=m"
		const service = `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":80}]%s}}`
		apply := launch.Request{Method: "PATCH", Path: path, ContentType: applyPatch, Body: fmt.Sprintf(service, `,"sessionAffinity":"ClientIP"`)}
		Expect(parse(send(ctx, apply), 201)["spec"]).To(HaveKeyWithValue("sessionAffinity", "ClientIP"))
		apply.Body = fmt.Sprintf(service, "")
		Expect(parse(send(ctx, apply), 200)["spec"]).To(HaveKeyWithValue("sessionAffinity", "None"))
	})
})

var _ = Describe("Document 2, section 2: merge strategy markers", Ordered, func() {
	var path string
	BeforeAll(func(ctx SpecContext) {
		path = defineSpec(ctx, "merged", "", `{"type":"object","properties":{
			"plain":{"type":"array","items":{"type":"string"}},
			"set":{"type":"array","x-svc-list-type":"set","items":{"type":"string"}},
			"map":{"type":"array","x-svc-list-type":"map","x-svc-list-map-keys":["name"],"items":
				{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"v":{"type":"string"}}}},
			"whole":{"type":"object","x-svc-map-type":"atomic","additionalProperties":{"type":"string"}},
			"struct":{"type":"object","x-svc-map-type":"atomic","properties":{"a":{"type":"string"},"b":{"type":"string"}}},
			"free":{"type":"object","x-svc-map-type":"granular","additionalProperties":{"type":"string"}},
			"fields":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}}}`)
	})
	apply := func(ctx context.Context, name, manager, spec string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{
			Method: "PATCH", Path: path + "/" + name + "?fieldManager=" + manager, ContentType: applyPatch,
			Body: `{"apiVersion":"merged.example.com/v1","kind":"Thing","spec":` + spec + `}`,
		})
	}
	DescribeTable("lists that are sets or maps, and maps, have a manager for each entry",
		func(ctx SpecContext, name, one, two, both string) {
			parse(apply(ctx, name, "one", one), 201)
			Expect(parse(apply(ctx, name, "two", two), 200)["spec"]).To(Equal(parse(launch.Response{Status: 200, Body: both}, 200)))
			Expect(parse(apply(ctx, name, "two", `{}`), 200)["spec"]).To(Equal(parse(launch.Response{Status: 200, Body: one}, 200)))
		},
		Entry("set", "set", `{"set":["a","b"]}`, `{"set":["b","c"]}`, `{"set":["a","b","c"]}`),
		Entry("map", "map", `{"map":[{"name":"a","v":"1"}]}`, `{"map":[{"name":"b","v":"2"}]}`, `{"map":[{"name":"a","v":"1"},{"name":"b","v":"2"}]}`),
		Entry("a map of scalars", "free", `{"free":{"a":"1"}}`, `{"free":{"b":"2"}}`, `{"free":{"a":"1","b":"2"}}`),
		Entry("a struct", "fields", `{"fields":{"a":"1"}}`, `{"fields":{"b":"2"}}`, `{"fields":{"a":"1","b":"2"}}`),
	)
	DescribeTable("what is atomic has one manager",
		func(ctx SpecContext, name, one, two string) {
			parse(apply(ctx, name, "one", one), 201)
			failed(apply(ctx, name, "two", two), 409)
		},
		Entry("a list without a type", "plain", `{"plain":["a"]}`, `{"plain":["b"]}`),
		Entry("a map that is marked so", "whole", `{"whole":{"a":"1"}}`, `{"whole":{"b":"1"}}`),
		Entry("a struct that is marked so", "struct", `{"struct":{"a":"1"}}`, `{"struct":{"b":"1"}}`),
	)
})
