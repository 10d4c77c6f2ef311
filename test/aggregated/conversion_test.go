package aggregated

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("conversion reviews", func() {
	// webhook serves a webhook that converts objects, and keeps the newest review.
	webhook := func() (string, []byte, *atomic.Value) {
		var seen atomic.Value
		seen.Store("")
		url := serveWebhook("conversion", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var review struct {
				Request struct {
					UID               string
					DesiredAPIVersion string
					Objects           []object
				}
			}
			if err != nil || r.URL.Path != "/convert" || json.Unmarshal(body, &review) != nil {
				http.Error(w, r.URL.Path, http.StatusBadRequest)
				return
			}
			seen.Store(string(body))
			for _, obj := range review.Request.Objects {
				obj["apiVersion"] = review.Request.DesiredAPIVersion
			}
			w.Header().Set("Content-Type", "application/json")
			converted, err := json.Marshal(object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": object{
				"uid": review.Request.UID, "result": object{"status": "Success"}, "convertedObjects": review.Request.Objects}})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(converted) // the spec sees what is missing
		})
		authority, err := os.ReadFile(host.authority.File)
		Expect(err).NotTo(HaveOccurred())
		return url + "/convert", authority, &seen
	}

	DescribeTable("are in the names of the address at which the definition was written",
		func(inDomain bool) {
			n := newNamespace()
			url, authority, seen := webhook()
			at, suffix, crds, group := onFleet, "", "customresourcedefinitions", "convert.example.org"
			if inDomain {
				at, suffix, crds, group = onHost, ".svc.dev", "customresourcedefinitions.apiextensions.svc.dev", "convert.example.com"
			}
			apiVersion := "apiextensions.k8s.io/v1"
			if inDomain {
				apiVersion = "apiextensions.svc.dev/v1"
			}
			name := "widgets." + group + suffix
			version := func(name string, storage bool) object {
				return object{"name": name, "served": true, "storage": storage, "schema": object{"openAPIV3Schema": object{"type": "object"}}}
			}
			definition, err := json.Marshal(object{"apiVersion": apiVersion, "kind": "CustomResourceDefinition", "metadata": object{"name": name}, "spec": object{
				"group": group + suffix, "scope": "Namespaced", "names": object{"plural": "widgets", "kind": "Widget"},
				"versions": []object{version("v1", false), version("v2", true)},
				"conversion": object{"strategy": "Webhook", "webhook": object{
					"conversionReviewVersions": []string{"v1"}, "clientConfig": object{"url": url, "caBundle": authority}}},
			}})
			Expect(err).NotTo(HaveOccurred())
			apply(at, string(definition), "create")
			DeferCleanup(func() { kubectl(at, "delete", crds, name) })
			Expect(strings.Contains(kubectl(at, "get", crds, name, "-o", "json"), `"admission.svc.dev/names": "domain"`)).To(Equal(inDomain))
			kubectl(at, "wait", crds+"/"+name, "--for=condition=Established", "--timeout=3m")

			widget := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"one","ownerReferences":[
				{"apiVersion":"v1","kind":"Pod","name":"owner","uid":"5f6c0a54-6a7e-4d8a-9d1c-000000000000"}]}}`, group)
			Eventually(func() error {
				_, _, err := onFleet.Run(GinkgoT().Context(), widget, "create", "--dry-run=server", "-n", n, "-f", "-")
				return err
			}).Should(Succeed(), "the answers were in the names of the reviews")
			request := parse(seen.Load().(string))["request"].(object)
			Expect(request["desiredAPIVersion"]).To(HavePrefix(group + suffix + "/v"))
			object := request["objects"].([]any)[0].(map[string]any)
			Expect(object["apiVersion"]).To(HavePrefix(group + suffix + "/v"))
			owner := object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)
			if inDomain {
				Expect(owner["apiVersion"]).To(Equal("core.svc.dev/v1"))
			} else {
				Expect(owner["apiVersion"]).To(Equal("v1"))
			}
		},
		Entry("the domain's", true),
		Entry("Kubernetes'", false),
	)
})
