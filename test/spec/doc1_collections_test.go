package spec

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: deletecollection and eviction", func() {
	names := func(list object) (found []string) {
		for _, item := range list["items"].([]any) {
			found = append(found, metadataOf(item.(object))["name"].(string))
		}
		return found
	}
	maps := func(ctx context.Context) string {
		path := "/api/v1/namespaces/" + namespace(ctx) + "/configmaps"
		for name, label := range map[string]string{"a": "x", "b": "x", "c": "y"} {
			create(ctx, path, configMap(`"name":"`+name+`","labels":{"l":"`+label+`"}`, `{}`))
		}
		return path
	}
	It("a DELETE of a collection deletes what the selectors match, and returns it", func(ctx SpecContext) {
		path := maps(ctx)
		deleted := parse(send(ctx, launch.Request{Method: "DELETE", Path: path + "?labelSelector=l%3Dx"}), 200)
		Expect(deleted).To(HaveKeyWithValue("kind", "ConfigMapList"))
		Expect(names(deleted)).To(ConsistOf("a", "b"))
		Expect(names(get(ctx, path))).To(ConsistOf("c"))
	})
	It("a dry run of it deletes nothing", func(ctx SpecContext) {
		path := maps(ctx)
		parse(send(ctx, launch.Request{Method: "DELETE", Path: path + "?dryRun=All"}), 200)
		Expect(names(get(ctx, path))).To(ConsistOf("a", "b", "c"))
	})
	It("it needs the verb deletecollection", func(ctx SpecContext) {
		path := maps(ctx)
		status := failed(send(ctx, launch.Request{Method: "DELETE", Path: path, Header: map[string]string{"Impersonate-User": "stranger"}}), 403)
		Expect(status.Message).To(ContainSubstring("cannot deletecollection resource"))
	})
	It("a POST to the eviction of a pod deletes it, unless a budget forbids that or it is a dry run", func(ctx SpecContext) {
		ns := namespace(ctx)
		pods := "/api/v1/namespaces/" + ns + "/pods"
		create(ctx, pods, `{"metadata":{"name":"p","labels":{"app":"a"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
		parse(send(ctx, launch.Request{Method: "PATCH", Path: pods + "/p/status", ContentType: mergePatch,
			Body: `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`}), 200)
		budgets := "/apis/policy/v1/namespaces/" + ns + "/poddisruptionbudgets"
		create(ctx, budgets, `{"metadata":{"name":"b"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"a"}}}}`)
		evict := func(query string) launch.Response {
			GinkgoHelper()
			return send(ctx, launch.Request{Method: "POST", Path: pods + "/p/eviction" + query, ContentType: inJSON,
				Body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p","namespace":"` + ns + `"}}`})
		}
		terminating := func() bool { return metadataOf(get(ctx, pods+"/p"))["deletionTimestamp"] != nil }
		Expect(failed(evict(""), 429).Reason).To(Equal(metav1.StatusReasonTooManyRequests))
		Expect(terminating()).To(BeFalse())
		parse(send(ctx, launch.Request{Method: "DELETE", Path: budgets + "/b"}), 200)
		parse(evict("?dryRun=All"), 201)
		Expect(terminating()).To(BeFalse())
		parse(evict(""), 201)
		Expect(terminating()).To(BeTrue())
	})
})

var _ = Describe("Document 1, section 6: events", func() {
	It("a watch from a version before the first list or watch of its kind has every later change", func(ctx SpecContext) {
		path := "/api/v1/namespaces/" + namespace(ctx) + "/podtemplates"
		template := func(name string) string {
			return `{"metadata":{"name":"` + name + `"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
		}
		first := metadataOf(create(ctx, path, template("a")))["resourceVersion"].(string)
		create(ctx, path, template("b"))
		parse(send(ctx, launch.Request{Method: "DELETE", Path: path + "/a"}), 200)
		var seen []string
		for _, event := range watched(ctx, server, path+"?resourceVersion="+first, atLeast(2)) {
			seen = append(seen, fmt.Sprint(event["type"], " ", metadataOf(event["object"].(object))["name"]))
		}
		Expect(seen).To(Equal([]string{"ADDED b", "DELETED a"}))
	})
	It("a streaming list is refused while its gate is off", func(ctx SpecContext) {
		failed(send(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"}), 422)
	})
})
