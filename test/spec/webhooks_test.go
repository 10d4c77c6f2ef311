package spec

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// backend serves TLS until the spec ends, and returns its URL and its authority, as
// the clientConfig of a webhook has it.
func backend(handler http.HandlerFunc) (url, authority string) {
	GinkgoHelper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(GinkgoWriter, "", 0)
	s.StartTLS()
	DeferCleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s.URL, base64.StdEncoding.EncodeToString(certificate)
}

var _ = Describe("Document 1, section 4: dry run, and webhooks", func() {
	// register registers a webhook for the config maps of a namespace. Its further
	// members are those of a webhook.
	register := func(ctx context.Context, ns, url, authority, members string) launch.Response {
		GinkgoHelper()
		DeferCleanup(func(ctx SpecContext) {
			send(ctx, launch.Request{Method: "DELETE", Path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/" + ns})
		})
		return send(ctx, launch.Request{Method: "POST", Path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", ContentType: inJSON,
			Body: fmt.Sprintf(`{"metadata":{"name":%[1]q},"webhooks":[{"name":"w.example.com","admissionReviewVersions":["v1"],
				"clientConfig":{"url":%[2]q,"caBundle":%[3]q},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%[1]q}},
				"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],%[4]s}]}`, ns, url, authority, members)})
	}
	// refusing serves a webhook that refuses everything, with what it was asked.
	refusing := func() (url, authority string) {
		return backend(func(w http.ResponseWriter, r *http.Request) {
			var review struct {
				Request struct {
					UID    string
					DryRun bool
				}
			}
			if json.NewDecoder(r.Body).Decode(&review) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", inJSON)
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"asked with dryRun %t"}}}`,
				review.Request.UID, review.Request.DryRun)
		})
	}
	post := func(ctx context.Context, ns, query string) launch.Response {
		GinkgoHelper()
		return send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/" + ns + "/configmaps" + query, ContentType: inJSON, Body: configMap(`"generateName":"x-"`, `{}`)})
	}
	for _, effects := range []string{"None", "NoneOnDryRun"} {
		It("a webhook without side effects takes part in a dry run: "+effects, func(ctx SpecContext) {
			ns := namespace(ctx)
			url, authority := refusing()
			parse(register(ctx, ns, url, authority, `"sideEffects":"`+effects+`"`), 201)
			for query, dry := range map[string]bool{"": false, "?dryRun=All": true} {
				Eventually(ctx, func(g Gomega) {
					g.Expect(post(ctx, ns, query).Body).To(ContainSubstring(fmt.Sprintf("asked with dryRun %t", dry)))
				}).Should(Succeed())
			}
		})
	}
	for _, effects := range []string{"Some", "Unknown"} {
		It("a webhook with side effects is refused, so that no dry run can have any: "+effects, func(ctx SpecContext) {
			ns := namespace(ctx)
			status := failed(register(ctx, ns, "https://127.0.0.1:1", "", `"sideEffects":"`+effects+`"`), 422)
			Expect(status.Message).To(ContainSubstring("sideEffects"))
		})
	}
	It("an expression may ask the authorizer for the rights of the user (document 2, section 2)", func(ctx SpecContext) {
		ns := namespace(ctx)
		url, authority := refusing()
		// A service account that may read the log of one pod.
		for kind, body := range map[string]string{
			"roles": `{"metadata":{"name":"robot"},"rules":[{"apiGroups":[""],"resources":["pods/log"],"resourceNames":["p"],"verbs":["get"]}]}`,
			"rolebindings": `{"metadata":{"name":"robot"},"subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"` + ns + `"}],
				"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"robot"}}`,
		} {
			create(ctx, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/"+kind, body)
		}
		robot := "authorizer.serviceAccount('" + ns + "', 'robot').group('').resource('pods')"
		in := ".namespace('" + ns + "')"
		// The webhook is asked if all hold, and refuses then.
		for _, rule := range []string{
			`authorizer.group('').resource('configmaps').namespace('` + ns + `').name('x').check('create').allowed()`,
			`authorizer.group('').resource('pods').subresource('log').check('get').allowed()`,
			`authorizer.path('/healthz').check('get').allowed()`,
			`!authorizer.serviceAccount('default', 'none').group('').resource('secrets').check('get').allowed()`,
			`authorizer.serviceAccount('default', 'none').group('').resource('secrets').check('get').reason() == ''`,
			robot + `.subresource('log')` + in + `.name('p').check('get').allowed()`,
			robot + `.subresource('log')` + in + `.name('p').check('get').reason().startsWith('RBAC: allowed by RoleBinding')`,
			`!` + robot + in + `.name('p').check('get').allowed()`,
			`!` + robot + `.subresource('log').namespace('default').name('p').check('get').allowed()`,
			`!` + robot + `.subresource('log')` + in + `.name('q').check('get').allowed()`,
			`!` + robot + `.subresource('log')` + in + `.name('p').check('delete').allowed()`,
			`!authorizer.serviceAccount('default', 'none').path('/metrics').check('get').allowed()`,
		} {
			encoded, err := json.Marshal(rule)
			Expect(err).NotTo(HaveOccurred())
			parse(register(ctx, ns, url, authority, `"sideEffects":"None","matchConditions":[{"name":"c","expression":`+string(encoded)+`}]`), 201)
			Eventually(ctx, func(g Gomega) {
				g.Expect(post(ctx, ns, "?dryRun=All").Body).To(ContainSubstring("asked with dryRun true"), rule)
			}).Should(Succeed())
			parse(send(ctx, launch.Request{Method: "DELETE", Path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/" + ns}), 200)
			Eventually(ctx, func() int { return post(ctx, ns, "?dryRun=All").Status }).Should(Equal(201))
		}
	})
	It("a webhook that refuses everything does not keep an operator from changing and removing it", func(ctx SpecContext) {
		ns := namespace(ctx)
		for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
			path := "/apis/admissionregistration.k8s.io/v1/" + kind
			DeferCleanup(func(ctx SpecContext) { send(ctx, launch.Request{Method: "DELETE", Path: path + "/" + ns}) })
			create(ctx, path, fmt.Sprintf(`{"metadata":{"name":%[1]q},"webhooks":[{"name":"w.example.com","admissionReviewVersions":["v1"],"sideEffects":"None",
				"failurePolicy":"Fail","clientConfig":{"url":"https://127.0.0.1:1"},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%[1]q}},
				"rules":[{"apiGroups":["","admissionregistration.k8s.io"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}]}`, ns))
			Eventually(ctx, func() int { return post(ctx, ns, "?dryRun=All").Status }).Should(Equal(500), "it refuses config maps")
			parse(send(ctx, launch.Request{Method: "PATCH", Path: path + "/" + ns, ContentType: mergePatch, Body: `{"metadata":{"labels":{"a":"b"}}}`}), 200)
			parse(send(ctx, launch.Request{Method: "DELETE", Path: path + "/" + ns}), 200)
			Eventually(ctx, func() int { return post(ctx, ns, "?dryRun=All").Status }).Should(Equal(201))
		}
	})
	It("a webhook cannot set a field that the release does not have (document 2, section 9)", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		old := up(ctx, filepath.Join(dir, "data"), "--release=1.27")
		url, authority := backend(func(w http.ResponseWriter, r *http.Request) {
			var review struct {
				Request struct {
					UID  string
					Kind struct{ Kind string }
				}
			}
			if json.NewDecoder(r.Body).Decode(&review) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			// A container that does not end is new in 1.28, a field to select by in 1.30.
			change := `{"op":"add","path":"/spec/initContainers","value":[{"name":"proxy","image":"i","restartPolicy":"Always"}]}`
			if review.Request.Kind.Kind == "CustomResourceDefinition" {
				change = `{"op":"add","path":"/spec/versions/0/selectableFields","value":[{"jsonPath":".spec"}]},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}`
			}
			patch := base64.StdEncoding.EncodeToString([]byte("[" + change + "]"))
			w.Header().Set("Content-Type", inJSON)
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true,"patchType":"JSONPatch","patch":%q}}`, review.Request.UID, patch)
		})
		post := func(path, body string) launch.Response {
			GinkgoHelper()
			resp, err := launch.Send(ctx, old.Config, launch.Request{Method: "POST", Path: path, ContentType: inJSON, Body: body})
			Expect(err).NotTo(HaveOccurred())
			return resp
		}
		parse(post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"inject"},"webhooks":[{"name":"w.example.com",
			"admissionReviewVersions":["v1"],"sideEffects":"None","clientConfig":{"url":%q,"caBundle":%q},
			"rules":[{"apiGroups":["","apiextensions.k8s.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods","customresourcedefinitions"]}]}]}`, url, authority)), 201)
		Eventually(ctx, func(g Gomega) {
			resp := post("/api/v1/namespaces/default/pods", `{"metadata":{"generateName":"p-"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`)
			g.Expect(resp.Status).To(Equal(201), resp.Body)
			g.Expect(resp.Body).To(ContainSubstring(`"name":"proxy"`))
			var pod struct {
				Spec struct{ InitContainers []map[string]any }
			}
			g.Expect(json.Unmarshal([]byte(resp.Body), &pod)).To(Succeed())
			g.Expect(pod.Spec.InitContainers).To(HaveLen(1))
			g.Expect(pod.Spec.InitContainers[0]).NotTo(HaveKey("restartPolicy"))
		}).Should(Succeed())
		definition := post(definitions, `{"metadata":{"name":"things.old.example.com"},"spec":{"group":"old.example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"string"}}}}}]}}`)
		Expect(definition.Status).To(Equal(201), definition.Body)
		Expect(definition.Body).To(And(ContainSubstring(`"labels":{"a":"b"}`), Not(ContainSubstring("selectableFields"))))
	})
	It("a field of a variable without a type is looked up when the expression is evaluated (document 2, section 2)", func(ctx SpecContext) {
		ns := namespace(ctx)
		url, authority := refusing()
		const condition = `"sideEffects":"None","matchConditions":[{"name":"c","expression":"!has(object.nothing) && has(object.metadata.name)"}]`
		parse(register(ctx, ns, url, authority, condition), 201)
		Eventually(ctx, func(g Gomega) {
			g.Expect(post(ctx, ns, "?dryRun=All").Body).To(ContainSubstring("asked with dryRun true"))
		}).Should(Succeed())
	})
})

var _ = Describe("Custom resources whose conversion webhook fails", func() {
	const free = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	// converted returns the paths of the versions of a kind, with an object "t" of
	// version v1, whose webhook has the handler.
	converted := func(ctx context.Context, name string, handler http.HandlerFunc) (first, second string) {
		GinkgoHelper()
		first = define(ctx, name, "")
		create(ctx, first, fmt.Sprintf(`{"apiVersion":"%s.example.com/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"a":1}}`, name))
		url, authority := backend(handler)
		parse(send(ctx, launch.Request{Method: "PATCH", Path: definitions + "/things." + name + ".example.com", ContentType: mergePatch,
			Body: `{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"` + url + `","caBundle":"` + authority + `"}}},
				"versions":[` + version("v1", true, "", free) + `,` + version("v2", false, "", free) + `]}}`}), 200)
		return first, strings.Replace(first, "/v1/", "/v2/", 1)
	}
	// convert returns the response of a webhook that sets fields of the objects.
	convert := func(body []byte, change func(object)) string {
		var review struct {
			Request struct {
				UID               string
				DesiredAPIVersion string
				Objects           []object
			}
		}
		if err := json.Unmarshal(body, &review); err != nil {
			return err.Error()
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.DesiredAPIVersion
			change(o)
		}
		response, err := json.Marshal(object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": object{
			"uid": review.Request.UID, "result": object{"status": "Success"}, "convertedObjects": review.Request.Objects,
		}})
		if err != nil {
			return err.Error()
		}
		return string(response)
	}
	reply := func(change func(object)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			w.Header().Set("Content-Type", inJSON)
			fmt.Fprint(w, convert(body, change))
		}
	}
	DescribeTable("a wrong answer fails the request, names the fault, and changes nothing",
		func(ctx SpecContext, name string, handler http.HandlerFunc, want string) {
			first, second := converted(ctx, name, handler)
			Eventually(ctx, func(g Gomega) {
				resp := send(ctx, launch.Request{Method: "GET", Path: second + "/t"})
				g.Expect(resp.Status).To(Equal(500), resp.Body)
				g.Expect(resp.Body).To(ContainSubstring(want))
			}).Should(Succeed())
			failed(send(ctx, launch.Request{Method: "PATCH", Path: second + "/t", ContentType: mergePatch, Body: `{"spec":{"a":2}}`}), 500)
			Expect(get(ctx, first+"/t")["spec"]).To(HaveKeyWithValue("a", BeEquivalentTo(1)))
		},
		Entry("another name", "wrongname", reply(func(o object) { o["metadata"].(object)["name"] = "other" }), "must have the same name"),
		Entry("another uid", "wronguid", reply(func(o object) { o["metadata"].(object)["uid"] = "other" }), "must have the same UID"),
		Entry("another version", "wrongversion", reply(func(o object) { o["apiVersion"] = "wrongversion.example.com/v3" }), "wrongversion.example.com/v3"),
		Entry("no review", "wrongbody", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }), "conversion webhook for wrongbody.example.com/v1, Kind=Thing failed"),
		Entry("an error", "wrongstatus", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }), "conversion webhook for wrongstatus.example.com/v1, Kind=Thing failed"),
	)
	It("a right answer is served, with what it changed", func(ctx SpecContext) {
		_, second := converted(ctx, "right", reply(func(o object) { o["spec"] = object{"b": 1} }))
		Eventually(ctx, func(g Gomega) {
			resp := send(ctx, launch.Request{Method: "GET", Path: second + "/t"})
			g.Expect(resp.Status).To(Equal(200), resp.Body)
			g.Expect(resp.Body).To(ContainSubstring(`"spec":{"b":1}`))
		}).Should(Succeed())
	})
	It("a slow one delays only the requests that need it, until their own time is up", func(ctx SpecContext) {
		var asked atomic.Bool
		first, second := converted(ctx, "slow", func(_ http.ResponseWriter, r *http.Request) {
			asked.Store(true)
			_, _ = io.Copy(io.Discard, r.Body) // so that the end of the connection is noticed
			<-r.Context().Done()
		})
		Eventually(ctx, func(g Gomega) { // until the version is served
			resp := send(ctx, launch.Request{Method: "GET", Path: second + "/t?timeout=1s"})
			g.Expect(resp.Status).To(BeElementOf(500, 504), resp.Body)
			g.Expect(asked.Load()).To(BeTrue())
		}).Should(Succeed())
		started := time.Now()
		Expect(get(ctx, first+"/t")["spec"]).To(HaveKey("a"))
		Expect(get(ctx, first)["items"]).To(HaveLen(1))
		Expect(time.Since(started)).To(BeNumerically("<", launch.Patience/2))
	})
})
