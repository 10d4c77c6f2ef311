package spec

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/test/launch"
)

const inJSON = "application/json"

// configMap returns a config map in JSON with further members of its metadata.
func configMap(metadata, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `},"data":` + data + `}`
}

func metadataOf(obj object) object {
	GinkgoHelper()
	metadata, ok := obj["metadata"].(object)
	Expect(ok).To(BeTrue(), "%v", obj)
	return metadata
}

// timeOf returns a time of an object's metadata.
func timeOf(obj object, member string) time.Time {
	GinkgoHelper()
	parsed, err := time.Parse(time.RFC3339, fmt.Sprint(metadataOf(obj)[member]))
	Expect(err).NotTo(HaveOccurred(), member)
	return parsed
}

var _ = Describe("Document 1, section 2: names and metadata", Ordered, func() {
	var maps string
	BeforeAll(func(ctx SpecContext) { maps = "/api/v1/namespaces/" + namespace(ctx) + "/configmaps" })
	post := func(ctx SpecContext, path, body string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "POST", Path: path, ContentType: inJSON, Body: body})
	}

	It("one object of a kind has a name at a time, and another may have it after the deletion", func(ctx SpecContext) {
		first := create(ctx, maps, configMap(`"name":"one"`, `{}`))
		Expect(failed(post(ctx, maps, configMap(`"name":"one"`, `{}`)), 409).Reason).To(Equal(metav1.StatusReasonAlreadyExists))
		create(ctx, "/api/v1/namespaces/"+namespace(ctx)+"/configmaps", configMap(`"name":"one"`, `{}`))
		create(ctx, strings.TrimSuffix(maps, "configmaps")+"secrets", `{"metadata":{"name":"one"}}`)
		parse(send(ctx, launch.Request{Method: "DELETE", Path: maps + "/one"}), 200)
		second := create(ctx, maps, configMap(`"name":"one"`, `{}`))
		Expect(metadataOf(second)["uid"]).NotTo(Equal(metadataOf(first)["uid"]))
	})
	It("the server generates a name that is unique from generateName", func(ctx SpecContext) {
		a, b := create(ctx, maps, configMap(`"generateName":"made-"`, `{}`)), create(ctx, maps, configMap(`"generateName":"made-"`, `{}`))
		Expect(metadataOf(a)["name"]).To(And(HavePrefix("made-"), Not(Equal(metadataOf(b)["name"]))))
	})
	It("a creatable object needs a name", func(ctx SpecContext) {
		Expect(failed(post(ctx, maps, configMap("", `{}`)), 422).Message).To(ContainSubstring("name or generateName is required"))
	})
	It("uid, resourceVersion and creationTimestamp are the server's", func(ctx SpecContext) {
		before := time.Now().Truncate(time.Second)
		obj := create(ctx, maps, configMap(`"name":"mine","uid":"mine","resourceVersion":"","creationTimestamp":"2001-01-01T00:00:00Z"`, `{}`))
		Expect(metadataOf(obj)["uid"]).To(MatchRegexp(`^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`))
		Expect(timeOf(obj, "creationTimestamp")).To(BeTemporally(">=", before))
		Expect(timeOf(obj, "creationTimestamp")).To(BeTemporally("<=", time.Now()))
		Expect(metadataOf(obj)["resourceVersion"]).NotTo(BeEmpty())
		Expect(metadataOf(obj)).NotTo(HaveKey("deletionTimestamp"))
	})
	It("resourceVersion changes with the object, and only then", func(ctx SpecContext) {
		created := create(ctx, maps, configMap(`"name":"versions"`, `{"a":"1"}`))
		patch := launch.Request{Method: "PATCH", Path: maps + "/versions", ContentType: mergePatch, Body: `{"data":{"a":"1"}}`}
		Expect(metadataOf(parse(send(ctx, patch), 200))["resourceVersion"]).To(Equal(metadataOf(created)["resourceVersion"]))
		patch.Body = `{"data":{"a":"2"}}`
		Expect(metadataOf(parse(send(ctx, patch), 200))["resourceVersion"]).NotTo(Equal(metadataOf(created)["resourceVersion"]))
	})
	DescribeTable("the kind of a collection is that of its items with List appended", func(ctx SpecContext, path, kind string) {
		list := get(ctx, path)
		Expect(list).To(HaveKeyWithValue("kind", kind))
		Expect(metadataOf(list)["resourceVersion"]).NotTo(BeEmpty())
		Expect(list["items"]).To(BeAssignableToTypeOf([]any{}))
	},
		Entry(nil, "/api/v1/pods", "PodList"),
		Entry(nil, "/api/v1/services", "ServiceList"),
		Entry(nil, "/api/v1/nodes", "NodeList"),
		Entry(nil, definitions, "CustomResourceDefinitionList"),
		Entry(nil, "/apis/apiregistration.k8s.io/v1/apiservices", "APIServiceList"),
	)
	It("the binary envelope begins with the magic prefix, and has the object and its type", func(ctx SpecContext) {
		create(ctx, maps, configMap(`"name":"binary"`, `{"a":"1"}`))
		body := []byte(send(ctx, launch.Request{Method: "GET", Path: maps + "/binary", Accept: "application/vnd.svc.protobuf"}).Body)
		Expect(body[:4]).To(Equal([]byte{0x6b, 0x38, 0x73, 0x00}))
		var envelope runtime.Unknown
		Expect(envelope.Unmarshal(body[4:])).To(Succeed())
		Expect(envelope.TypeMeta).To(Equal(runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}))
		var decoded corev1.ConfigMap
		Expect(decoded.Unmarshal(envelope.Raw)).To(Succeed())
		Expect(decoded.Data).To(Equal(map[string]string{"a": "1"}))
	})
	It("a body in protobuf may be answered in JSON", func(ctx SpecContext) {
		raw, err := (&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "from-binary"}}).Marshal()
		Expect(err).NotTo(HaveOccurred())
		envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: raw}).Marshal()
		Expect(err).NotTo(HaveOccurred())
		resp := send(ctx, launch.Request{Method: "POST", Path: maps, ContentType: "application/vnd.svc.protobuf", Accept: inJSON, Body: "k8s\x00" + string(envelope)})
		Expect(metadataOf(parse(resp, 201))).To(HaveKeyWithValue("name", "from-binary"))
	})
})

var _ = Describe("Document 1, section 3: deletion in two phases", Ordered, func() {
	for _, kind := range []string{"ConfigMap", "Thing"} {
		It("a "+kind+" with finalizers is terminating until the last is removed, in any order", func(ctx SpecContext) {
			collection, body := "/api/v1/namespaces/"+namespace(ctx)+"/configmaps", configMap(`"name":"f","finalizers":["e.com/a","e.com/b"]`, `{}`)
			if kind == "Thing" {
				collection = define(ctx, "finalized", "")
				body = `{"apiVersion":"finalized.example.com/v1","kind":"Thing","metadata":{"name":"f","finalizers":["e.com/a","e.com/b"]}}`
			}
			create(ctx, collection, body)
			before := time.Now().Truncate(time.Second)
			Expect(send(ctx, launch.Request{Method: "DELETE", Path: collection + "/f"}).Status).To(BeElementOf(200, 202))
			deleted := get(ctx, collection+"/f")
			terminating := metadataOf(deleted)
			Expect(timeOf(deleted, "deletionTimestamp")).To(BeTemporally(">=", before), "the time of the request")
			Expect(timeOf(deleted, "deletionTimestamp")).To(BeTemporally("<=", time.Now()))
			remove := func(finalizers string) {
				GinkgoHelper()
				parse(send(ctx, launch.Request{Method: "PATCH", Path: collection + "/f", ContentType: mergePatch, Body: `{"metadata":{"finalizers":` + finalizers + `}}`}), 200)
			}
			remove(`["e.com/b","e.com/a"]`)
			remove(`["e.com/a"]`)
			Expect(metadataOf(get(ctx, collection+"/f"))["deletionTimestamp"]).To(Equal(terminating["deletionTimestamp"]))
			remove(`[]`)
			Expect(send(ctx, launch.Request{Method: "GET", Path: collection + "/f"}).Status).To(Equal(404))
		})
	}
})

var _ = Describe("Document 1, section 4: versions of gets, lists and watches", Ordered, func() {
	var maps, first, second string
	BeforeAll(func(ctx SpecContext) {
		maps = "/api/v1/namespaces/" + namespace(ctx) + "/configmaps"
		get(ctx, maps) // the history of a kind begins with its first list
		first = metadataOf(create(ctx, maps, configMap(`"name":"a"`, `{"v":"1"}`)))["resourceVersion"].(string)
		second = metadataOf(parse(send(ctx, launch.Request{Method: "PATCH", Path: maps + "/a", ContentType: mergePatch, Body: `{"data":{"v":"2"}}`}), 200))["resourceVersion"].(string)
		get(ctx, maps+"?resourceVersion="+second) // the cache has it from here on
	})
	value := func(obj object) any { return obj["data"].(object)["v"] }

	DescribeTable("a get", func(ctx SpecContext, query func() string) {
		Expect(value(get(ctx, maps+"/a"+query()))).To(Equal("2"))
	},
		Entry("without a version is the most recent", func() string { return "" }),
		Entry("of another version is not older", func() string { return "?resourceVersion=" + second }),
		Entry("of an earlier version may be newer", func() string { return "?resourceVersion=" + first }),
	)
	It("a get of version 0 has any", func(ctx SpecContext) {
		Expect(value(get(ctx, maps+"/a?resourceVersion=0"))).To(BeElementOf("1", "2"))
	})
	DescribeTable("a list", func(ctx SpecContext, query func() string, version func() string, want string) {
		list := get(ctx, maps+"?"+query())
		if version != nil {
			Expect(metadataOf(list)["resourceVersion"]).To(Equal(version()))
		}
		Expect(value(list["items"].([]any)[0].(object))).To(Equal(want))
	},
		Entry("without a version is the most recent", func() string { return "" }, nil, "2"),
		Entry("with a version is not older", func() string { return "resourceVersion=" + second }, nil, "2"),
		Entry("with a version and limit is exact", func() string { return "limit=1&resourceVersion=" + first }, func() string { return first }, "1"),
		Entry("Exact is exact", func() string { return "resourceVersionMatch=Exact&resourceVersion=" + first }, func() string { return first }, "1"),
		Entry("Exact with limit is exact", func() string { return "limit=1&resourceVersionMatch=Exact&resourceVersion=" + first }, func() string { return first }, "1"),
		Entry("NotOlderThan is not older", func() string { return "resourceVersionMatch=NotOlderThan&resourceVersion=" + second }, nil, "2"),
	)
	It("chunks have the version of the first, and no later changes", func(ctx SpecContext) {
		create(ctx, maps, configMap(`"name":"b"`, `{"v":"1"}`))
		page := get(ctx, maps+"?limit=1")
		Expect(metadataOf(page)["remainingItemCount"]).To(BeEquivalentTo(1))
		create(ctx, maps, configMap(`"name":"c"`, `{"v":"1"}`))
		next := get(ctx, maps+"?limit=5&continue="+metadataOf(page)["continue"].(string))
		Expect(metadataOf(next)).To(And(HaveKeyWithValue("resourceVersion", metadataOf(page)["resourceVersion"]), HaveKeyWithValue("continue", "")))
		Expect(next["items"]).To(HaveLen(1))
		Expect(metadataOf(next)).NotTo(HaveKey("remainingItemCount"), "the list is complete")
		for _, query := range []string{"limit=1&labelSelector=!none", "limit=1&fieldSelector=metadata.name!%3Dnone", "limit=9", ""} {
			Expect(metadataOf(get(ctx, maps+"?"+query))).NotTo(HaveKey("remainingItemCount"), query)
		}
	})
	It("continue with a version that is not 0 is refused", func(ctx SpecContext) {
		token := metadataOf(get(ctx, maps+"?limit=1"))["continue"].(string)
		failed(send(ctx, launch.Request{Method: "GET", Path: maps + "?limit=1&resourceVersion=5&continue=" + token}), 400)
	})
	It("a version that does not exist yet is answered with 504 and a time to retry", func(ctx SpecContext) {
		for _, path := range []string{maps, maps + "/a"} {
			resp := send(ctx, launch.Request{Method: "GET", Path: path + "?resourceVersion=999999999"})
			Expect(failed(resp, 504).Message).To(ContainSubstring("Too large resource version"))
			Expect(resp.Header).To(HaveKey("Retry-After"))
		}
	})
	DescribeTable("a watch", func(ctx SpecContext, version func() string, types ...string) {
		events := watched(ctx, server, maps+"?fieldSelector=metadata.name%3Da"+version(), atLeast(len(types)))
		var seen []string
		for _, event := range events {
			seen = append(seen, event["type"].(string))
		}
		Expect(seen).To(Equal(types), "%v", events)
	},
		Entry("without a version begins with what exists", func() string { return "" }, "ADDED"),
		Entry("from version 0 begins with what exists", func() string { return "&resourceVersion=0" }, "ADDED"),
		Entry("from a version shows what changed after it", func() string { return "&resourceVersion=" + first }, "MODIFIED"),
	)
	It("a watch is a stream of JSON documents", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "GET", Path: maps + "?watch=1&timeoutSeconds=1"})
		Expect(resp.Header.Get("Content-Type")).To(Equal(inJSON))
		Expect(resp.Header).NotTo(HaveKey("Content-Length"))
	})
	It("a stale PUT is answered with 409", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PUT", Path: maps + "/a", ContentType: inJSON, Body: configMap(`"name":"a","resourceVersion":"`+first+`"`, `{}`)})
		Expect(failed(resp, 409).Reason).To(Equal(metav1.StatusReasonConflict))
	})
	It("a patch with a stale version is answered with 409", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PATCH", Path: maps + "/a", ContentType: mergePatch, Body: `{"metadata":{"resourceVersion":"` + first + `"},"data":{"v":"3"}}`})
		Expect(failed(resp, 409).Reason).To(Equal(metav1.StatusReasonConflict))
	})
})

var _ = Describe("Document 1, section 4: dry run", Ordered, func() {
	var maps string
	BeforeAll(func(ctx SpecContext) { maps = "/api/v1/namespaces/" + namespace(ctx) + "/configmaps" })
	exists := func(ctx context.Context, name string) int {
		return send(ctx, launch.Request{Method: "GET", Path: maps + "/" + name}).Status
	}

	It("every write returns the object, and stores nothing", func(ctx SpecContext) {
		body := configMap(`"name":"d"`, `{"a":"1"}`)
		parse(send(ctx, launch.Request{Method: "POST", Path: maps + "?dryRun=All", ContentType: inJSON, Body: body}), 201)
		Expect(exists(ctx, "d")).To(Equal(404))
		version := metadataOf(create(ctx, maps, body))["resourceVersion"]
		changed := parse(send(ctx, launch.Request{Method: "PUT", Path: maps + "/d?dryRun=All", ContentType: inJSON, Body: configMap(`"name":"d"`, `{"a":"2"}`)}), 200)
		Expect(changed["data"]).To(HaveKeyWithValue("a", "2"))
		for _, patch := range [][2]string{{mergePatch, `{"data":{"a":"2"}}`}, {strategic, `{"data":{"a":"2"}}`}, {jsonPatch, `[{"op":"replace","path":"/data/a","value":"2"}]`}, {applyPatch, configMap(``, `{"a":"2"}`)}} {
			query := "?dryRun=All"
			if patch[0] == applyPatch {
				query += "&fieldManager=m&force=true"
			}
			resp := send(ctx, launch.Request{Method: "PATCH", Path: maps + "/d" + query, ContentType: patch[0], Body: patch[1]})
			Expect(parse(resp, 200)["data"]).To(HaveKeyWithValue("a", "2"), patch[0])
		}
		parse(send(ctx, launch.Request{Method: "DELETE", Path: maps + "/d?dryRun=All"}), 200)
		Expect(metadataOf(get(ctx, maps+"/d"))["resourceVersion"]).To(Equal(version))
	})
	It("the object is that which would be stored, with defaults and what admission sets", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "POST", Path: strings.TrimSuffix(maps, "configmaps") + "pods?dryRun=All", ContentType: inJSON, Body: aPod})
		Expect(parse(resp, 201)["spec"]).To(And(HaveKeyWithValue("restartPolicy", "Always"), HaveKeyWithValue("priority", BeEquivalentTo(0))))
	})
	It("an invalid object is refused", func(ctx SpecContext) {
		failed(send(ctx, launch.Request{Method: "POST", Path: maps + "?dryRun=All", ContentType: inJSON, Body: configMap(`"name":"NO"`, `{}`)}), 422)
	})
	It("another value than All is refused", func(ctx SpecContext) {
		failed(send(ctx, launch.Request{Method: "POST", Path: maps + "?dryRun=Some", ContentType: inJSON, Body: configMap(`"name":"x"`, `{}`)}), 422)
		Expect(exists(ctx, "x")).To(Equal(404))
	})
	It("dryRun without a value is as no dryRun", func(ctx SpecContext) {
		parse(send(ctx, launch.Request{Method: "POST", Path: maps + "?dryRun", ContentType: inJSON, Body: configMap(`"name":"none"`, `{}`)}), 201)
		Expect(exists(ctx, "none")).To(Equal(200))
	})
})
