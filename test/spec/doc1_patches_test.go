package spec

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/launch"
)

// The media types of patches.
const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	strategic  = "application/strategic-merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

var _ = Describe("Document 1, section 4: patches and updates", Ordered, func() {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"%s},"spec":{%s"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"secret-name","image":"i"%s}]}}}}`
	var path, logged string
	BeforeAll(func(ctx SpecContext) {
		collection := "/apis/apps/v1/namespaces/" + namespace(ctx) + "/deployments"
		create(ctx, collection, fmt.Sprintf(deployment, "", "", ""))
		path, logged = collection+"/d", server.Output()
	})
	AfterAll(func() {
		Expect(server.Output()[len(logged):]).NotTo(MatchRegexp(`(?m)^E\d`), "nothing that is a client's fault is logged as an error")
	})
	change := func(ctx SpecContext, method, contentType, query, body string) launch.Response {
		GinkgoHelper()
		if contentType == applyPatch {
			query += "&force=true"
		}
		return send(ctx, launch.Request{Method: method, Path: path + "?fieldManager=m&" + query, ContentType: contentType, Body: body})
	}
	const badRequest = metav1.StatusReasonBadRequest

	DescribeTable("a wrong type is answered with 400, which names the field and nothing else of the object",
		func(ctx SpecContext, method, contentType, body, field string) {
			query := ""
			if contentType != applyPatch {
				query = "fieldValidation=Strict"
			}
			status := failed(change(ctx, method, contentType, query, body), 400)
			Expect(status.Reason).To(Equal(badRequest))
			Expect(status.Message).To(And(ContainSubstring(field), Not(ContainSubstring("secret-name"))))
		},
		Entry("update", "PUT", "application/json", fmt.Sprintf(deployment, "", `"replicas":"many",`, ""), "spec.replicas"),
		Entry("merge patch", "PATCH", mergePatch, `{"spec":{"replicas":"many"}}`, "spec.replicas"),
		Entry("strategic merge patch", "PATCH", strategic, `{"spec":{"replicas":"many"}}`, "spec.replicas"),
		Entry("JSON patch", "PATCH", jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":"many"}]`, "spec.replicas"),
		Entry("apply", "PATCH", applyPatch, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"many"}}`, "spec.replicas"),
		Entry("apply of an integer that does not fit", "PATCH", applyPatch, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":4294967297}}`, "spec.replicas"),
		Entry("strategic merge patch of an integer that does not fit", "PATCH", strategic, `{"spec":{"replicas":4294967297}}`, "spec.replicas"),
	)

	DescribeTable("a quantity that cannot be parsed is answered with 400",
		func(ctx SpecContext, method, contentType, body string) {
			status := failed(change(ctx, method, contentType, "", body), 400)
			Expect(status.Reason).To(Equal(badRequest))
			Expect(status.Message).To(And(ContainSubstring("quantities must match"), Not(ContainSubstring("secret-name"))))
		},
		Entry("update", "PUT", "application/json", fmt.Sprintf(deployment, "", "", `,"resources":{"limits":{"cpu":"abc"}}`)),
		Entry("merge patch", "PATCH", mergePatch, `{"spec":{"template":{"spec":{"containers":[{"name":"secret-name","resources":{"limits":{"cpu":"abc"}}}]}}}}`),
		Entry("strategic merge patch", "PATCH", strategic, `{"spec":{"template":{"spec":{"containers":[{"name":"secret-name","resources":{"limits":{"cpu":"abc"}}}]}}}}`),
		Entry("JSON patch", "PATCH", jsonPatch, `[{"op":"add","path":"/spec/template/spec/containers/0/resources","value":{"limits":{"cpu":"abc"}}}]`),
		Entry("apply", "PATCH", applyPatch, fmt.Sprintf(deployment, "", "", `,"resources":{"limits":{"cpu":"abc"}}`)),
	)

	Describe("fieldValidation", func() {
		unknown := map[string]struct{ method, body string }{
			"application/json": {"PUT", fmt.Sprintf(deployment, "", `"bogus":1,`, "")},
			mergePatch:         {"PATCH", `{"spec":{"bogus":1}}`},
			strategic:          {"PATCH", `{"spec":{"bogus":1}}`},
			jsonPatch:          {"PATCH", `[{"op":"add","path":"/spec/bogus","value":1}]`},
			applyPatch:         {"PATCH", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"bogus":1}}`},
		}
		for contentType, given := range unknown {
			It("Strict refuses unknown fields with 400: "+given.method+" "+contentType, func(ctx SpecContext) {
				status := failed(change(ctx, given.method, contentType, "dryRun=All&fieldValidation=Strict", given.body), 400)
				Expect(status.Message).To(And(ContainSubstring(`strict decoding error: unknown field "spec.bogus"`), Not(ContainSubstring("secret-name"))))
			})
			It("Warn drops unknown fields with a warning: "+given.method+" "+contentType, func(ctx SpecContext) {
				resp := change(ctx, given.method, contentType, "dryRun=All&fieldValidation=Warn", given.body)
				Expect(parse(resp, 200)["spec"]).NotTo(HaveKey("bogus"))
				Expect(resp.Header["Warning"]).To(ConsistOf(`299 - "unknown field \"spec.bogus\""`))
			})
			It("Ignore drops unknown fields: "+given.method+" "+contentType, func(ctx SpecContext) {
				resp := change(ctx, given.method, contentType, "dryRun=All&fieldValidation=Ignore", given.body)
				Expect(parse(resp, 200)["spec"]).NotTo(HaveKey("bogus"))
				Expect(resp.Header["Warning"]).To(BeEmpty())
			})
		}
	})

	DescribeTable("a resourceVersion that is not a number is answered with 400",
		func(ctx SpecContext, method, contentType, body string) {
			for _, version := range []string{"abc", "-1"} {
				status := failed(change(ctx, method, contentType, "", fmt.Sprintf(body, version)), 400)
				Expect(status.Reason).To(Equal(badRequest))
				Expect(status.Message).To(HavePrefix(`metadata.resourceVersion: Invalid value: "` + version + `"`))
			}
		},
		Entry("update", "PUT", "application/json", fmt.Sprintf(deployment, `,"resourceVersion":"%s"`, "", "")),
		Entry("merge patch", "PATCH", mergePatch, `{"metadata":{"resourceVersion":"%s"}}`),
		Entry("strategic merge patch", "PATCH", strategic, `{"metadata":{"resourceVersion":"%s"}}`),
		Entry("JSON patch", "PATCH", jsonPatch, `[{"op":"replace","path":"/metadata/resourceVersion","value":"%s"}]`),
		Entry("apply", "PATCH", applyPatch, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"resourceVersion":"%s"}}`),
	)

	DescribeTable("a JSON patch that cannot be applied is answered with 422, the operation and the reason",
		func(ctx SpecContext, patch, message string) {
			status := failed(change(ctx, "PATCH", jsonPatch, "", patch), 422)
			Expect(status.Reason).To(Equal(metav1.StatusReasonInvalid))
			Expect(status.Message).To(HavePrefix(message))
		},
		Entry("a test that fails", `[{"op":"test","path":"/spec/replicas","value":7}]`, `operation 0 of the patch, test "/spec/replicas", failed: `),
		Entry("a path that is missing", `[{"op":"test","path":"/spec/replicas","value":1},{"op":"remove","path":"/spec/bogus"}]`, `operation 1 of the patch, remove "/spec/bogus", failed: `),
		Entry("an unknown operation", `[{"op":"bogus","path":"/spec/replicas"}]`, `operation 0 of the patch, bogus "/spec/replicas", failed: `),
		Entry("after a test of the version and the kind", `[{"op":"test","path":"/apiVersion","value":"apps/v1"},{"op":"test","path":"/kind","value":"Deployment"},{"op":"remove","path":"/spec/bogus"}]`,
			`operation 2 of the patch, remove "/spec/bogus", failed: `),
	)
	It("an apply with a port that is not a number is answered with 400, and the field", func(ctx SpecContext) {
		service := "/api/v1/namespaces/default/services/ported?fieldManager=m"
		body := `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":"http"}]}}`
		status := failed(send(ctx, launch.Request{Method: "PATCH", Path: service, ContentType: applyPatch, Body: body}), 400)
		Expect(status.Message).To(ContainSubstring(".spec.ports"))
	})
	It("a JSON patch of a scale names the operation that fails", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PATCH", Path: path + "/scale", ContentType: jsonPatch, Body: `[{"op":"test","path":"/kind","value":"Scale"},{"op":"remove","path":"/spec/bogus"}]`})
		Expect(failed(resp, 422).Message).To(HavePrefix(`operation 1 of the patch, remove "/spec/bogus", failed: `))
	})
})

var _ = Describe("Document 1, section 4: JSON patches name the operation that fails in the version of the request", func() {
	refused := func(ctx SpecContext, path, patch, message string) {
		GinkgoHelper()
		for _, query := range []string{"", "?dryRun=All"} {
			resp := send(ctx, launch.Request{Method: "PATCH", Path: path + query, ContentType: jsonPatch, Body: patch})
			Expect(failed(resp, 422).Message).To(HavePrefix(message))
		}
	}
	It("of a CustomResourceDefinition", func(ctx SpecContext) {
		define(ctx, "operations", "")
		refused(ctx, definitions+"/things.operations.example.com",
			`[{"op":"test","path":"/kind","value":"CustomResourceDefinition"},{"op":"test","path":"/spec/names/kind","value":"Thing"},{"op":"test","path":"/spec/scope","value":"Cluster"}]`,
			`operation 2 of the patch, test "/spec/scope", failed: `)
	})
	It("of an APIService", func(ctx SpecContext) {
		const services = "/apis/apiregistration.k8s.io/v1/apiservices"
		create(ctx, services, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.operations.example.org"},
			"spec":{"group":"operations.example.org","version":"v1","groupPriorityMinimum":10,"versionPriority":10}}`)
		DeferCleanup(func(ctx SpecContext) {
			parse(send(ctx, launch.Request{Method: "DELETE", Path: services + "/v1.operations.example.org"}), 200)
		})
		refused(ctx, services+"/v1.operations.example.org",
			`[{"op":"test","path":"/spec/groupPriorityMinimum","value":10},{"op":"test","path":"/spec/versionPriority","value":11}]`,
			`operation 1 of the patch, test "/spec/versionPriority", failed: `)
	})
	It("of an older version of a kind", func(ctx SpecContext) {
		scalers := "/apis/autoscaling/v1/namespaces/" + namespace(ctx) + "/horizontalpodautoscalers"
		create(ctx, scalers, `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},
			"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"maxReplicas":3,"targetCPUUtilizationPercentage":50}}`)
		refused(ctx, scalers+"/h",
			`[{"op":"test","path":"/spec/targetCPUUtilizationPercentage","value":50},{"op":"test","path":"/spec/maxReplicas","value":4}]`,
			`operation 1 of the patch, test "/spec/maxReplicas", failed: `)
	})
})

var _ = Describe("Document 1, section 6: unknown fields of applied CustomResourceDefinitions and APIServices", func() {
	for path, body := range map[string]string{
		definitions + "/things.levels.example.com": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.levels.example.com"},
			"spec":{"bogus":1,"group":"levels.example.com","scope":"Cluster","names":{"plural":"things","singular":"thing","kind":"Thing"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.levels.example.org": `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.levels.example.org"},
			"spec":{"bogus":1,"group":"levels.example.org","version":"v1","groupPriorityMinimum":10,"versionPriority":10}}`,
	} {
		It("follow the field validation: "+path, func(ctx SpecContext) {
			apply := func(level string) launch.Response {
				return send(ctx, launch.Request{Method: "PATCH", Path: path + "?dryRun=All&fieldManager=m&fieldValidation=" + level, ContentType: applyPatch, Body: body})
			}
			Expect(failed(apply("Strict"), 400).Message).To(ContainSubstring(`strict decoding error: unknown field "spec.bogus"`))
			for level, warnings := range map[string][]string{"Warn": {`299 - "unknown field \"spec.bogus\""`}, "Ignore": nil} {
				resp := apply(level)
				Expect(parse(resp, 201)["spec"]).NotTo(HaveKey("bogus"))
				Expect(resp.Header["Warning"]).To(BeEquivalentTo(warnings))
			}
		})
	}
})

var _ = Describe("Document 1, section 4: patches of custom resources", Ordered, func() {
	const typeMeta = `"apiVersion":"patched.example.com/v1","kind":"Thing"`
	var path, logged string
	BeforeAll(func(ctx SpecContext) {
		collection := defineSpec(ctx, "patched", "", `{"type":"object","properties":{
			"secret":{"type":"string"}, "count":{"type":"integer"}, "any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":
				{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}}}`)
		create(ctx, collection, `{`+typeMeta+`,"metadata":{"name":"t"},"spec":{"secret":"word"}}`)
		path, logged = collection+"/t", server.Output()
	})
	AfterAll(func() {
		Expect(server.Output()[len(logged):]).NotTo(MatchRegexp(`(?m)^E\d`), "nothing that is a client's fault is logged as an error")
	})

	// A dry run is answered as the request itself is.
	for _, dryRun := range []string{"", "dryRun=All&"} {
		DescribeTable("are answered as those of kinds are: "+dryRun,
			func(ctx SpecContext, contentType, query, body string, code int, message string) {
				query = dryRun + query
				if contentType == applyPatch {
					query += "&fieldManager=m&force=true"
				}
				status := failed(send(ctx, launch.Request{Method: "PATCH", Path: path + "?" + query, ContentType: contentType, Body: body}), code)
				Expect(status.Message).To(And(ContainSubstring(message), Not(ContainSubstring("word"))))
			},
			Entry("a wrong type", mergePatch, "", `{"metadata":{"labels":7}}`, 400, "ObjectMeta.labels"),
			Entry("a duplicate field, with Strict", mergePatch, "fieldValidation=Strict", `{"spec":{"count":1,"count":2}}`, 400, `duplicate field "spec.count"`),
			Entry("an unknown field, with Strict", mergePatch, "fieldValidation=Strict", `{"spec":{"bogus":1}}`, 400, `strict decoding error: unknown field "spec.bogus"`),
			Entry("an unknown field of an apply, with Strict", applyPatch, "fieldValidation=Strict", `{`+typeMeta+`,"spec":{"bogus":1}}`, 400, `strict decoding error: unknown field "spec.bogus"`),
			Entry("a resourceVersion that is not a number", mergePatch, "", `{"metadata":{"resourceVersion":"abc"}}`, 400, "metadata.resourceVersion: Invalid value"),
			Entry("a JSON patch that fails", jsonPatch, "", `[{"op":"remove","path":"/spec/none"}]`, 422, `operation 0 of the patch, remove "/spec/none", failed`),
			Entry("an applied value of a wrong type", applyPatch, "", `{`+typeMeta+`,"spec":{"count":"many"}}`, 400, ".spec.count: expected numeric"),
			Entry("an applied set with a duplicate", applyPatch, "", `{`+typeMeta+`,"spec":{"set":["a","a"]}}`, 400, ".spec.set: duplicate entries"),
			Entry("an applied list without a key", applyPatch, "", `{`+typeMeta+`,"spec":{"list":[{}]}}`, 400, ".spec.list: element 0"),
			Entry("a list without a key", mergePatch, "", `{"spec":{"list":[{}]}}`, 422, "spec.list[0].name: Required value"),
			Entry("a value that does not fit the schema", mergePatch, "", `{"spec":{"count":"many"}}`, 422, "spec.count in body must be of type integer"),
		)
	}

	It("an apply drops unknown fields with a warning for each: Warn", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PATCH", Path: path + "?dryRun=All&fieldManager=m", ContentType: applyPatch, Body: `{` + typeMeta + `,"spec":{"count":1,"bogus":1,"any":{"a":1}},"more":1}`})
		Expect(parse(resp, 200)["spec"]).To(And(Not(HaveKey("bogus")), HaveKey("count"), HaveKeyWithValue("any", HaveKey("a"))))
		Expect(resp.Header["Warning"]).To(ConsistOf(`299 - "unknown field \"spec.bogus\""`, `299 - "unknown field \"more\""`))
	})
	It("an apply drops unknown fields: Ignore", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "PATCH", Path: path + "?dryRun=All&fieldManager=m&fieldValidation=Ignore", ContentType: applyPatch, Body: `{` + typeMeta + `,"spec":{"count":1,"bogus":1}}`})
		Expect(parse(resp, 200)["spec"]).NotTo(HaveKey("bogus"))
		Expect(resp.Header["Warning"]).To(BeEmpty())
	})
})
