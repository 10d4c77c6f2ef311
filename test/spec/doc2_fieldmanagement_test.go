package spec

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 2: field management record", func() {
	// managers returns the managers of an object with the names of the members of
	// data or spec that they own.
	managers := func(obj object) map[string][]string {
		owned := map[string][]string{}
		entries, _ := obj["metadata"].(object)["managedFields"].([]any)
		for _, entry := range entries {
			names := []string{}
			for _, member := range []string{"f:data", "f:spec"} {
				fields, _ := entry.(object)["fieldsV1"].(object)[member].(object)
				for name := range fields {
					if name != "." {
						names = append(names, name)
					}
				}
			}
			owned[entry.(object)["manager"].(string)] = names
		}
		return owned
	}
	// kinds are a built-in kind and a custom one: other handlers serve it.
	for _, kind := range []string{"ConfigMap", "Thing"} {
		Describe(kind, Ordered, func() {
			var collection, typeMeta string
			member := map[string]string{"ConfigMap": "data", "Thing": "spec"}[kind]
			BeforeAll(func(ctx SpecContext) {
				collection, typeMeta = "/api/v1/namespaces/"+namespace(ctx)+"/configmaps", `"apiVersion":"v1","kind":"ConfigMap"`
				if kind == "Thing" {
					collection = define(ctx, "managed", `"subresources":{},`)
					typeMeta = `"apiVersion":"managed.example.com/v1","kind":"Thing"`
				}
			})
			// made creates an object with data a, which manager one owns, and returns
			// its path, its version, and its body with a change and managedFields.
			made := func(ctx SpecContext, name string) (path string, body func(data, managedFields string) string) {
				GinkgoHelper()
				version := ""
				body = func(data, managedFields string) string {
					return fmt.Sprintf(`{%s,"metadata":{"name":%q,"resourceVersion":%q,"managedFields":%s},%q:%s}`, typeMeta, name, version, managedFields, member, data)
				}
				obj := create(ctx, collection+"?fieldManager=one", body(`{"a":"1"}`, "null"))
				Expect(managers(obj)).To(HaveKeyWithValue("one", ContainElement("f:a")))
				version = obj["metadata"].(object)["resourceVersion"].(string)
				return collection + "/" + name, body
			}
			change := func(ctx SpecContext, method, path, contentType, body string) object {
				GinkgoHelper()
				return parse(send(ctx, launch.Request{Method: method, Path: path + "?fieldManager=two", ContentType: contentType, Body: body}), 200)
			}

			It("an update with an empty list does not reset", func(ctx SpecContext) {
				path, body := made(ctx, "put-empty-list")
				Expect(managers(change(ctx, "PUT", path, "application/json", body(`{"a":"1","b":"2"}`, "[]")))).To(And(
					HaveKeyWithValue("one", ContainElement("f:a")), HaveKeyWithValue("two", ConsistOf("f:b"))))
			})
			It("an update with one empty entry strips all field management", func(ctx SpecContext) {
				path, body := made(ctx, "put-reset")
				Expect(managers(change(ctx, "PUT", path, "application/json", body(`{"a":"1"}`, "[{}]")))).To(BeEmpty())
			})
			It("an update that resets and changes owns what it changes", func(ctx SpecContext) {
				path, body := made(ctx, "put-reset-change")
				Expect(managers(change(ctx, "PUT", path, "application/json", body(`{"a":"1","b":"2"}`, "[{}]")))).To(
					Equal(map[string][]string{"two": {"f:b"}}))
			})
			It("an update in YAML resets, too", func(ctx SpecContext) {
				path, body := made(ctx, "put-yaml")
				Expect(managers(change(ctx, "PUT", path, "application/yaml", body(`{"a":"1","b":"2"}`, "[{}]")))).To(
					Equal(map[string][]string{"two": {"f:b"}}))
			})
			for contentType, patch := range map[string]string{
				"application/merge-patch+json":           `{"metadata":{"managedFields":%s},"` + member + `":{"b":"2"}}`,
				"application/strategic-merge-patch+json": `{"metadata":{"managedFields":%s},"` + member + `":{"b":"2"}}`,
				"application/json-patch+json":            `[{"op":"add","path":"/metadata/managedFields","value":%s},{"op":"add","path":"/` + member + `/b","value":"2"}]`,
			} {
				if kind == "Thing" && contentType == "application/strategic-merge-patch+json" {
					continue // document 1, section 4: not for custom resources
				}
				It("a patch resets as an update does: "+contentType, func(ctx SpecContext) {
					path, _ := made(ctx, "patch-empty-list")
					defer send(ctx, launch.Request{Method: "DELETE", Path: path})
					Expect(managers(change(ctx, "PATCH", path, contentType, fmt.Sprintf(patch, "[]")))).To(And(
						HaveKeyWithValue("one", ContainElement("f:a")), HaveKeyWithValue("two", ConsistOf("f:b"))))
					change(ctx, "PATCH", path, "application/merge-patch+json", `{"`+member+`":{"b":null}}`)
					Expect(managers(change(ctx, "PATCH", path, contentType, fmt.Sprintf(patch, "[{}]")))).To(
						Equal(map[string][]string{"two": {"f:b"}}))
				})
			}
			It("an apply request with managedFields is refused", func(ctx SpecContext) {
				path, _ := made(ctx, "apply")
				status := failed(send(ctx, launch.Request{Method: "PATCH", Path: path + "?fieldManager=two", ContentType: "application/apply-patch+yaml",
					Body: fmt.Sprintf(`{%s,"metadata":{"managedFields":[{}]}}`, typeMeta)}), 400)
				Expect(status.Message).To(ContainSubstring("metadata.managedFields must be nil"))
			})
		})
	}
})
