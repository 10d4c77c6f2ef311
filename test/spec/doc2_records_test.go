package spec

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 2: the members of the record, and its transfer", Ordered, func() {
	var maps string
	BeforeAll(func(ctx SpecContext) { maps = "/api/v1/namespaces/" + namespace(ctx) + "/configmaps" })
	apply := func(ctx context.Context, name, query, data string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "PATCH", Path: maps + "/" + name + "?" + query, ContentType: applyPatch,
			Body: `{"apiVersion":"v1","kind":"ConfigMap","data":` + data + `}`})
	}
	managers := func(obj object) (names []string) {
		for _, entry := range metadataOf(obj)["managedFields"].([]any) {
			names = append(names, entry.(object)["manager"].(string))
		}
		return names
	}

	It("an entry has the manager, the operation, the version, the time and the fields", func(ctx SpecContext) {
		parse(apply(ctx, "entries", "fieldManager=one", `{"a":"1"}`), 201)
		obj := parse(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/entries?fieldManager=two", ContentType: mergePatch, Body: `{"data":{"b":"2"}}`}), 200)
		entries := metadataOf(obj)["managedFields"].([]any)
		Expect(entries).To(HaveLen(2))
		for i, want := range []struct{ manager, operation, field string }{{"one", "Apply", "f:a"}, {"two", "Update", "f:b"}} {
			entry := entries[i].(object)
			Expect(entry).To(And(HaveKeyWithValue("manager", want.manager), HaveKeyWithValue("operation", want.operation),
				HaveKeyWithValue("apiVersion", "v1"), HaveKeyWithValue("fieldsType", "FieldsV1")))
			Expect(entry["fieldsV1"]).To(HaveKeyWithValue("f:data", HaveKeyWithValue(want.field, BeEmpty())))
			_, err := time.Parse(time.RFC3339, entry["time"].(string))
			Expect(err).NotTo(HaveOccurred())
		}
	})
	It("another write than an apply may overwrite the record", func(ctx SpecContext) {
		parse(apply(ctx, "overwritten", "fieldManager=one", `{"a":"1"}`), 201)
		obj := parse(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/overwritten?fieldManager=two", ContentType: mergePatch, Body: `{"metadata":{"managedFields":[
			{"manager":"other","operation":"Apply","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}`}), 200)
		Expect(managers(obj)).To(ConsistOf("other"))
		parse(apply(ctx, "overwritten", "fieldManager=other", `{"a":"2"}`), 200)
	})
	It("force is for an apply only", func(ctx SpecContext) {
		parse(apply(ctx, "forced", "fieldManager=one", `{}`), 201)
		failed(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/forced?force=true", ContentType: mergePatch, Body: `{"data":{"a":"1"}}`}), 422)
	})
	It("an apply needs no resourceVersion, and with one it may be stale", func(ctx SpecContext) {
		first := parse(apply(ctx, "versions", "fieldManager=one", `{"a":"1"}`), 201)
		parse(apply(ctx, "versions", "fieldManager=one", `{"a":"2"}`), 200)
		failed(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/versions?fieldManager=one", ContentType: applyPatch, Body: fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":%q},"data":{"a":"3"}}`, metadataOf(first)["resourceVersion"])}), 409)
	})
	It("a user hands a field over to a controller, by a temporary manager", func(ctx SpecContext) {
		parse(apply(ctx, "handed", "fieldManager=user", `{"a":"1","b":"1"}`), 201)
		parse(apply(ctx, "handed", "fieldManager=temporary", `{"a":"1"}`), 200)
		parse(apply(ctx, "handed", "fieldManager=user", `{"b":"1"}`), 200)
		obj := parse(apply(ctx, "handed", "fieldManager=controller&force=true", `{"a":"2"}`), 200)
		Expect(obj["data"]).To(And(HaveKeyWithValue("a", "2"), HaveKeyWithValue("b", "1")))
		Expect(managers(obj)).To(ConsistOf("user", "controller"), "the temporary manager owns nothing")
		parse(apply(ctx, "handed", "fieldManager=user", `{"b":"2"}`), 200)
	})
	It("two managers transfer a field: both set its value, and one leaves it out", func(ctx SpecContext) {
		parse(apply(ctx, "moved", "fieldManager=one", `{"a":"1"}`), 201)
		parse(apply(ctx, "moved", "fieldManager=two", `{"a":"1"}`), 200)
		obj := parse(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/moved?fieldManager=one", ContentType: applyPatch, Body: `{"apiVersion":"v1","kind":"ConfigMap"}`}), 200)
		Expect(managers(obj)).To(ConsistOf("two"))
		parse(apply(ctx, "moved", "fieldManager=two", `{"a":"2"}`), 200)
	})
	It("what an apply changes on a subresource of another type is recorded for the object", func(ctx SpecContext) {
		deployments := "/apis/apps/v1/namespaces/" + namespace(ctx) + "/deployments"
		create(ctx, deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
		parse(send(ctx, launch.Request{Method: "PATCH", Path: deployments + "/d/scale?fieldManager=scaler&force=true", ContentType: applyPatch,
			Body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":3}}`}), 200)
		Expect(metadataOf(get(ctx, deployments+"/d"))["managedFields"]).To(ContainElement(And(
			HaveKeyWithValue("manager", "scaler"), HaveKeyWithValue("subresource", "scale"), HaveKeyWithValue("fieldsV1", HaveKeyWithValue("f:spec", HaveKey("f:replicas"))))))
	})
})

var _ = Describe("Document 2, section 2: lists of built-in and custom types", func() {
	It("a list with the merge key of a patch strategy has a manager for each entry", func(ctx SpecContext) {
		pods := "/api/v1/namespaces/" + namespace(ctx) + "/services/s?fieldManager="
		port := func(manager, port string) launch.Response {
			return send(ctx, launch.Request{Method: "PATCH", Path: pods + manager, ContentType: applyPatch, Body: `{"apiVersion":"v1","kind":"Service","spec":{"ports":[` + port + `]}}`})
		}
		parse(port("one", `{"name":"a","port":80}`), 201)
		Expect(parse(port("two", `{"name":"b","port":81}`), 200)["spec"]).To(HaveKeyWithValue("ports", HaveLen(2)))
		failed(port("two", `{"name":"c","port":80}`), 409)
	})
	It("what is within an atomic list is part of it", func(ctx SpecContext) {
		path := defineSpec(ctx, "nested", "", `{"type":"object","properties":{"list":{"type":"array","items":{"type":"object","properties":{
			"inner":{"type":"array","x-svc-list-type":"set","items":{"type":"string"}}}}}}}`)
		apply := func(manager, value string) launch.Response {
			return send(ctx, launch.Request{Method: "PATCH", Path: path + "/x?fieldManager=" + manager, ContentType: applyPatch,
				Body: `{"apiVersion":"nested.example.com/v1","kind":"Thing","spec":{"list":[{"inner":["` + value + `"]}]}}`})
		}
		parse(apply("one", "a"), 201)
		Expect(failed(apply("two", "b"), 409).Details.Causes[0].Field).To(Equal(".spec.list"))
	})
	DescribeTable("a marker that does not fit is refused", func(ctx SpecContext, name, schema, want string) {
		status := failed(send(ctx, launch.Request{Method: "POST", Path: definitions, ContentType: inJSON, Body: fmt.Sprintf(`{"metadata":{"name":"things.%[1]s.example.com"},"spec":{
			"group":"%[1]s.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%[2]s}}}}]}}`, name, schema)}), 422)
		Expect(status.Message).To(ContainSubstring(want))
	},
		Entry("an unknown list type", "unknownlist", `{"type":"array","x-svc-list-type":"bag","items":{"type":"string"}}`, `Unsupported value: "bag"`),
		Entry("an unknown map type", "unknownmap", `{"type":"object","x-svc-map-type":"loose"}`, `Unsupported value: "loose"`),
		Entry("a set of objects that are not atomic", "setofobjects", `{"type":"array","x-svc-list-type":"set","items":{"type":"object"}}`, "must be atomic"),
		Entry("keys of a set", "keysofset", `{"type":"array","x-svc-list-type":"set","x-svc-list-map-keys":["a"],"items":{"type":"string"}}`, "must be map if x-svc-list-map-keys is non-empty"),
		Entry("a key that is not scalar", "keys", `{"type":"array","x-svc-list-type":"map","x-svc-list-map-keys":["a"],"items":{"type":"object","required":["a"],"properties":{"a":{"type":"object"}}}}`, "must be a scalar type"),
		Entry("a map without keys", "nokeys", `{"type":"array","x-svc-list-type":"map","items":{"type":"object"}}`, "must not be empty if"),
	)
})

var _ = Describe("Document 2, section 5: callers", func() {
	It("a normal user has no object, and cannot be added by a request", func(ctx SpecContext) {
		for _, path := range []string{"/api/v1/users", "/api/v1/groups", "/apis/user.openshift.io/v1/users"} {
			Expect(send(ctx, launch.Request{Method: "POST", Path: path, ContentType: inJSON, Body: `{"metadata":{"name":"jane"}}`}).Status).To(Equal(404), path)
		}
	})
})

var _ = Describe("Document 2, section 7: errors", func() {
	It("a gate that is not operational any more cannot be disabled", func(ctx SpecContext) {
		Expect(refused(ctx, "--feature-gates=CPUManager=false")).To(ContainSubstring("cannot set feature gate CPUManager to false, feature is locked to true"))
	})
})
