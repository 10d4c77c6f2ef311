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
	)
})

var _ = Describe("Document 1, section 4: patches of custom resources", Ordered, func() {
	var path string
	BeforeAll(func(ctx SpecContext) {
		collection := define(ctx, "patched", "")
		create(ctx, collection, `{"apiVersion":"patched.example.com/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"secret":"word"}}`)
		path = collection + "/t"
	})

	DescribeTable("are answered as those of kinds are",
		func(ctx SpecContext, contentType, query, body string, code int, message string) {
			status := failed(send(ctx, launch.Request{Method: "PATCH", Path: path + "?" + query, ContentType: contentType, Body: body}), code)
			Expect(status.Message).To(And(ContainSubstring(message), Not(ContainSubstring("word"))))
		},
		Entry("a wrong type", mergePatch, "", `{"metadata":{"labels":7}}`, 400, "ObjectMeta.labels"),
		Entry("a duplicate field, with Strict", mergePatch, "fieldValidation=Strict", `{"spec":{"a":1,"a":2}}`, 400, `duplicate field "spec.a"`),
		Entry("a resourceVersion that is not a number", mergePatch, "", `{"metadata":{"resourceVersion":"abc"}}`, 400, "metadata.resourceVersion: Invalid value"),
		Entry("a JSON patch that fails", jsonPatch, "", `[{"op":"remove","path":"/spec/none"}]`, 422, `operation 0 of the patch, remove "/spec/none", failed`),
	)
})
