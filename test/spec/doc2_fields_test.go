package spec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 9: fields that the release does not have", func() {
	const (
		services = "/api/v1/namespaces/default/services"
		newer    = `unknown field \"spec.trafficDistribution\"` // since 1.30
	)
	service := func(name, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"ports":[{"port":80}]%s}}`, name, spec)
	}
	writes := []struct{ how, method, contentType, body string }{
		{"create", "POST", "application/json", service("newer-fields", `,"trafficDistribution":"PreferClose"%s`)},
		{"update", "PUT", "application/json", service("newer-fields", `,"trafficDistribution":"PreferClose"%s`)},
		{"merge patch", "PATCH", "application/merge-patch+json", `{"spec":{"trafficDistribution":"PreferClose"%s}}`},
		{"strategic merge patch", "PATCH", "application/strategic-merge-patch+json", `{"spec":{"trafficDistribution":"PreferClose"%s}}`},
		{"JSON patch", "PATCH", "application/json-patch+json", `[{"op":"add","path":"/spec/trafficDistribution","value":"PreferClose"}]`},
		{"apply", "PATCH", "application/apply-patch+yaml", service("newer-fields", `,"trafficDistribution":"PreferClose"%s`)},
	}

	It("are unknown fields of every kind of write, and are never stored", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { send(ctx, launch.Request{Method: "DELETE", Path: services + "/newer-fields"}) })
		for _, w := range writes {
			path := services + "/newer-fields?fieldManager=a&fieldValidation="
			if w.method == "POST" {
				path = services + "?fieldValidation="
			}
			body := func(more string) string { return strings.Replace(w.body, "%s", more, 1) }
			resp := send(ctx, launch.Request{Method: w.method, Path: path + "Strict", ContentType: w.contentType, Body: body(`,"typo":1`)})
			Expect(resp.Status).To(Equal(400), "%s: %s", w.how, resp.Body)
			Expect(resp.Body).To(ContainSubstring(newer), w.how)
			if strings.Contains(w.body, "%s") {
				Expect(resp.Body).To(ContainSubstring(`unknown field \"spec.typo\"`), w.how)
			}
			for _, level := range []string{"Warn", "Ignore"} {
				resp = send(ctx, launch.Request{Method: w.method, Path: path + level, ContentType: w.contentType, Body: body("")})
				if w.method == "POST" && level == "Ignore" {
					Expect(resp.Status).To(Equal(409), resp.Body)
					continue
				}
				Expect(resp.Status).To(BeElementOf(200, 201), "%s: %s", w.how, resp.Body)
				Expect(resp.Body).NotTo(ContainSubstring("trafficDistribution"), w.how)
				if level == "Warn" {
					Expect(resp.Header["Warning"]).To(ContainElement("299 - \""+newer+"\""), w.how)
				} else {
					Expect(resp.Header["Warning"]).To(BeEmpty(), w.how)
				}
			}
		}
		Expect(send(ctx, launch.Request{Method: "GET", Path: services + "/newer-fields"}).Body).NotTo(ContainSubstring("trafficDistribution"))
	})

	It("stay in the statuses that node agents report", func(ctx SpecContext) {
		const nodes = "/api/v1/nodes"
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		withNodes := up(ctx, filepath.Join(dir, "data")) // in the default mode, Node,RBAC
		to := func(r launch.Request) launch.Response {
			GinkgoHelper()
			resp, err := launch.Send(ctx, withNodes.Config, r)
			Expect(err).NotTo(HaveOccurred())
			return resp
		}
		parse(to(launch.Request{Method: "POST", Path: nodes, ContentType: "application/json", Body: `{"metadata":{"name":"n"}}`}), 201)
		report := launch.Request{
			Method: "PATCH", Path: nodes + "/n/status", ContentType: "application/strategic-merge-patch+json", Body: `{"status":{"runtimeHandlers":[{"name":"runc"}]}}`,
			Header: map[string]string{"Impersonate-User": "system:node:n", "Impersonate-Group": "system:nodes"},
		}
		Expect(parse(to(report), 200)).To(HaveKeyWithValue("status", HaveKey("runtimeHandlers")))
		Expect(to(launch.Request{Method: "GET", Path: nodes + "/n"}).Body).To(ContainSubstring("runtimeHandlers"))
	})

	It("of definitions of custom resources are unknown fields, too", func(ctx SpecContext) {
		const body = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"newers.example.com"},"spec":{"group":"example.com","scope":"Namespaced",` +
			`"names":{"plural":"newers","singular":"newer","kind":"Newer","listKind":"NewerList"},"versions":[{"name":"v1","served":true,"storage":true,` +
			`"selectableFields":[{"jsonPath":".a"}],"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"}}}}}]}}`
		const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All&fieldValidation="
		resp := send(ctx, launch.Request{Method: "POST", Path: path + "Strict", ContentType: "application/json", Body: body})
		Expect(resp.Status).To(Equal(400), resp.Body)
		const applied = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/newers.example.com?fieldManager=m&dryRun=All&fieldValidation=Strict"
		resp = send(ctx, launch.Request{Method: "PATCH", Path: applied, ContentType: applyPatch, Body: body})
		Expect(failed(resp, 400).Message).To(ContainSubstring(`unknown field "spec.versions[0].selectableFields"`))
		resp = send(ctx, launch.Request{Method: "POST", Path: path + "Warn", ContentType: "application/json", Body: body})
		Expect(resp.Status).To(Equal(201), resp.Body)
		Expect(resp.Header["Warning"]).To(ConsistOf(`299 - "unknown field \"spec.versions[0].selectableFields\""`))
		Expect(resp.Body).NotTo(ContainSubstring("selectableFields"))
	})

	It("are not in the OpenAPI documents, and neither are the types of nothing else", func(ctx SpecContext) {
		for _, path := range []string{"/openapi/v2", "/openapi/v3/api/v1"} {
			body := send(ctx, launch.Request{Method: "GET", Path: path}).Body
			Expect(body).To(ContainSubstring("io.k8s.api.core.v1.ServiceSpec"), path)
			Expect(body).NotTo(ContainSubstring(`"trafficDistribution"`), path)
			Expect(body).NotTo(ContainSubstring("ImageVolumeSource"), path) // since 1.31
		}
	})

	It("values of enumerations that the release does not have are refused", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/pods?dryRun=All", ContentType: "application/json",
			Body: `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}],"tolerations":[{"key":"k","operator":"Gt","value":"1"}]}}`})
		Expect(failed(resp, 422).Message).To(ContainSubstring(`spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists"`))
	})

	It("stay in objects that have them from a newer release, until an update replaces the object", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		data := filepath.Join(dir, "data")
		latest, err := launch.Up(ctx, data, launch.WithoutControllers("--release=1.30", "--feature-gates=ServiceTrafficDistribution=true")...)
		Expect(err).NotTo(HaveOccurred())
		resp, err := launch.Send(ctx, latest.Config, launch.Request{Method: "POST", Path: services, ContentType: "application/json", Body: service("kept", `,"trafficDistribution":"PreferClose"`)})
		Expect(err).NotTo(HaveOccurred())
		created := parse(resp, 201)
		_, err = latest.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())

		older := up(ctx, data, "--release=1.29")
		for _, w := range []struct{ contentType, body string }{
			{"application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`},
			{"application/strategic-merge-patch+json", `{"metadata":{"labels":{"a":"c"}}}`},
			{"application/json-patch+json", `[{"op":"add","path":"/metadata/labels/a","value":"d"}]`},
			{"application/apply-patch+yaml", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"kept","annotations":{"a":"b"}}}`},
		} {
			resp, err := launch.Send(ctx, older.Config, launch.Request{Method: "PATCH", Path: services + "/kept?fieldManager=m&fieldValidation=Strict", ContentType: w.contentType, Body: w.body})
			Expect(err).NotTo(HaveOccurred())
			Expect(parse(resp, 200)).To(HaveKeyWithValue("spec", HaveKeyWithValue("trafficDistribution", "PreferClose")), w.contentType)
		}
		body, err := json.Marshal(created)
		Expect(err).NotTo(HaveOccurred())
		resp, err = launch.Send(ctx, older.Config, launch.Request{Method: "PUT", Path: services + "/kept", ContentType: "application/json", Body: strings.Replace(string(body), `"resourceVersion"`, `"ignored"`, 1)})
		Expect(err).NotTo(HaveOccurred())
		Expect(parse(resp, 200)).To(HaveKeyWithValue("spec", Not(HaveKey("trafficDistribution"))))
		Expect(resp.Header["Warning"]).To(ContainElement("299 - \"" + newer + "\""))
	})
})
