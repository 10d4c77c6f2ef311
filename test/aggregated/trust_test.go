package aggregated

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// serveWebhook serves a webhook with a certificate by the host's authority until the end of
// the spec, and returns its URL.
func serveWebhook(name string, handler http.HandlerFunc) string {
	GinkgoHelper()
	s := httptest.NewUnstartedServer(handler)
	Expect(host.authority.Server(dir, name, name, "127.0.0.1")).To(Succeed())
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	Expect(err).NotTo(HaveOccurred())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	DeferCleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// send sends a request to the host.
func send(ctx SpecContext, config *rest.Config, r launch.Request) launch.Response {
	GinkgoHelper()
	resp, err := launch.Send(ctx, config, r)
	Expect(err).NotTo(HaveOccurred(), "%s %s", r.Method, r.Path)
	return resp
}

var _ = Describe("the host's groups", func() {
	It("are not shadowed by definitions of the fleet whose names look like theirs", func(ctx SpecContext) {
		for _, group := range []string{"apps.host.svc.dev", "example.com", "metrics.k8s.io"} {
			name := "shadows." + group
			apply(onFleet, fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":%q,
				"annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},"spec":{"group":%q,"scope":"Namespaced","names":{"plural":"shadows","kind":"Shadow"},
				"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, name, group), "create")
			kubectl(onFleet, "wait", "crd", name, "--for=condition=Established", "--timeout=3m")
			DeferCleanup(func() { kubectl(onFleet, "delete", "crd", name) })
		}
		Expect(kubectl(onHost, "get", "--raw", "/apis/apps/v1")).To(And(ContainSubstring(`"deployments"`), Not(ContainSubstring("shadows"))))
		for _, path := range []string{"/apis/apps/v1/shadows", "/apis/example.com/v1/shadows", "/apis/metrics.k8s.io/v1/shadows"} {
			Expect(send(ctx, host.config, launch.Request{Method: "GET", Path: path}).Status).To(Equal(http.StatusNotFound), path)
		}
		Expect(fails(onHost, "", "get", "shadows")).To(ContainSubstring("the server doesn't have a resource type"))
	})

	It("are not served by the fleet's server, whatever a client asks of it", func(ctx SpecContext) {
		direct := rest.CopyConfig(host.config)
		direct.Host = backendURL
		for _, path := range []string{"/api/v1/pods", "/apis/apps/v1/deployments", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/core/v1/pods", "/apis/svc.dev/v1", "/apis/.svc.dev/v1"} {
			Expect(send(ctx, direct, launch.Request{Method: "GET", Path: path}).Status).To(Equal(http.StatusNotFound), path)
		}
	})
})

var _ = Describe("the fleet's own address, as an attacker sees it", func() {
	It("has no path and no header by which a user gets more than the host's roles grant", func(ctx SpecContext) {
		n := newNamespace()
		eve, config := userOf("eve", "")
		apply(onHost, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"address-`+n+`"},
			"rules":[{"apiGroups":["fleet.svc.dev"],"resources":["fleets/proxy"],"verbs":["*"]}]}`, "create")
		kubectl(onHost, "create", "clusterrolebinding", "address-"+n, "--clusterrole=address-"+n, "--user=eve")
		DeferCleanup(func() { kubectl(onHost, "delete", "clusterrole,clusterrolebinding", "address-"+n) })
		Eventually(func() string {
			_, stderr, _ := eve.Run(ctx, "", "get", "--raw", fleetPath+"/api/v1/namespaces/"+n+"/secrets")
			return stderr
		}).Should(ContainSubstring(`cannot list resource "secrets"`), "the address itself is allowed")
		secrets := "api/v1/namespaces/" + n + "/secrets"
		for _, path := range []string{
			fleetPath + "/" + secrets,
			fleetPath + "//" + secrets,
			fleetPath + "/./" + secrets,
			fleetPath + "/apis/../" + secrets,
			fleetPath + "/%61pi/v1/namespaces/" + n + "/secrets",
			fleetPath + "/api/v1/namespaces/" + n + "%2Fsecrets",
			fleetPath + "/apis/core.svc.dev/v1/namespaces/" + n + "/secrets",
			fleetPath + fleetPath + "/" + secrets,
			fleetPath + "/api/v1/watch/namespaces/" + n + "/secrets",
			fleetPath + "/../../../../../../" + secrets,
			"/apis/core.svc.dev/v1/namespaces/" + n + "/secrets",
			fleetPath + "/metrics", fleetPath + "/logs", fleetPath + "/debug/pprof/heap", fleetPath + "/configz",
		} {
			for _, header := range []map[string]string{
				nil,
				{"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
				{"X-Remote-Extra-Scopes": "all"},
				{"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
			} {
				resp := send(ctx, config, launch.Request{Method: "GET", Path: path, Header: header})
				Expect(resp.Status).To(BeElementOf(301, 400, 401, 403, 404), "%s %v: %s", path, header, resp.Body)
			}
		}
	})

	It("does not connect to addresses of the API server's own machine for a user", func(ctx SpecContext) {
		n := newNamespace()
		apply(onFleet, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"claims"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "create", "-n", n)
		for _, address := range []string{"127.0.0.1", "169.254.169.254", "::1"} {
			pods := fleetPath + "/api/v1/namespaces/" + n + "/pods/claims"
			resp := send(ctx, host.config, launch.Request{Method: "PATCH", Path: pods + "/status", ContentType: "application/merge-patch+json",
				Body: `{"status":{"podIP":"` + address + `","podIPs":[{"ip":"` + address + `"}]}}`})
			if resp.Status != http.StatusOK {
				continue // not even the claim is accepted
			}
			resp = send(ctx, host.config, launch.Request{Method: "GET", Path: fleetPath + "/api/v1/namespaces/" + n + "/pods/claims:1/proxy/"})
			Expect(resp.Status).To(BeElementOf(400, 403), "%s: %s", address, resp.Body)
			Expect(resp.Body).To(ContainSubstring("not allowed"), address)
		}
	})
})

var _ = Describe("CBOR under the domain's names", func() {
	It("is not served, as at any other address", func(ctx SpecContext) {
		n := newNamespace()
		for _, maps := range []string{"/apis/core.svc.dev/v1/namespaces/" + n + "/configmaps", fleetPath + "/api/v1/namespaces/" + n + "/configmaps"} {
			Expect(send(ctx, host.config, launch.Request{Method: "GET", Path: maps, Accept: "application/cbor"}).Status).To(Equal(http.StatusNotAcceptable), maps)
			Expect(send(ctx, host.config, launch.Request{Method: "POST", Path: maps, ContentType: "application/cbor", Body: "\xa0"}).Status).To(Equal(http.StatusUnsupportedMediaType), maps)
			mixed := send(ctx, host.config, launch.Request{Method: "GET", Path: maps, Accept: "application/cbor, application/json"})
			Expect(mixed.Status).To(Equal(http.StatusOK))
			Expect(mixed.Body).To(HavePrefix("{"))
		}
	})
})

var _ = Describe("admission reviews", func() {
	// webhook serves a webhook that adds a label and an owner of the fleet, and keeps the
	// newest review.
	webhook := func() (string, []byte, *atomic.Value) {
		var seen atomic.Value
		seen.Store("")
		url := serveWebhook("webhook", func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var review struct {
				Request struct {
					UID    string
					Object struct{ APIVersion string }
				}
			}
			if err != nil || r.URL.Path != "/mutate" || json.Unmarshal(body, &review) != nil {
				http.Error(w, r.URL.Path, http.StatusBadRequest)
				return
			}
			seen.Store(string(body))
			patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/metadata/ownerReferences","value":[
				{"apiVersion":"` + review.Request.Object.APIVersion + `","kind":"ConfigMap","name":"owner","uid":"5f6c0a54-6a7e-4d8a-9d1c-000000000000"}]}]`))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true,"patchType":"JSONPatch","patch":%q}}`, review.Request.UID, patch)
		})
		authority, err := os.ReadFile(host.authority.File)
		Expect(err).NotTo(HaveOccurred())
		return url + "/mutate", authority, &seen
	}
	DescribeTable("are in the names of the address at which the configuration was written",
		func(ctx SpecContext, inDomain bool) {
			n := newNamespace()
			url, authority, seen := webhook()
			at, apiVersion, group, want := onFleet, "admissionregistration.k8s.io/v1", "", "v1"
			kind := "mutatingwebhookconfigurations"
			if inDomain {
				at, apiVersion, group, want = onHost, "admissionregistration.svc.dev/v1", "core.svc.dev", "core.svc.dev/v1"
				kind = "mutatingwebhookconfigurations.admissionregistration.svc.dev"
			}
			configuration, err := json.Marshal(object{"apiVersion": apiVersion, "kind": "MutatingWebhookConfiguration", "metadata": object{"name": n}, "webhooks": []object{{
				"name": "w.example.com", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None", "clientConfig": object{"url": url, "caBundle": authority},
				"matchConditions": []object{{"name": "ours", "expression": "request.namespace == '" + n + "'"}},
				"rules":           []object{{"apiGroups": []string{group}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
			}}})
			Expect(err).NotTo(HaveOccurred())
			apply(at, string(configuration), "create")
			DeferCleanup(func() { kubectl(at, "delete", kind, n) })
			Expect(strings.Contains(kubectl(at, "get", kind, n, "-o", "json"), `"admission.svc.dev/names": "domain"`)).To(Equal(inDomain))
			Eventually(func() string {
				kubectl(onFleet, "create", "configmap", "-n", n, "x", "--dry-run=server")
				return seen.Load().(string)
			}).ShouldNot(BeEmpty())
			review := parse(seen.Load().(string))
			request := review["request"].(object)
			Expect(review["apiVersion"]).To(Equal("admission.k8s.io/v1"), "webhooks know this one only")
			Expect(request["kind"]).To(Equal(object{"group": group, "version": "v1", "kind": "ConfigMap"}))
			Expect(request["resource"]).To(HaveKeyWithValue("group", group))
			Expect(request["object"]).To(HaveKeyWithValue("apiVersion", want))
			// Its owner does not exist: the host deletes it at once.
			Expect(kubectl(onFleet, "create", "configmap", "-n", n, "owned", "-o", "jsonpath={.metadata.ownerReferences[0].apiVersion}")).To(Equal("v1"), "the patch was in the names of the review")
		},
		Entry("the domain's", true),
		Entry("Kubernetes'", false),
	)
})
