package spec

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// allow grants a user a rule in a namespace, and returns the header of the user's requests.
// It returns before the rule is in force.
func allow(ctx context.Context, ns, user string, rule rbacv1.PolicyRule) map[string]string {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: []rbacv1.PolicyRule{rule}}
	role, err := client.RbacV1().Roles(ns).Create(ctx, role, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = client.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return map[string]string{"Impersonate-User": user}
}

// soon waits until a request has a status.
func soon(ctx context.Context, r launch.Request, status int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		resp := send(ctx, r)
		g.Expect(resp.Status).To(Equal(status), resp.Body)
	}).Should(Succeed())
}

const (
	aPod         = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	aReview      = `{"spec":{"user":"jane","resourceAttributes":{"verb":"get","resource":"pods"}}}`
	aClusterRole = `{"metadata":{"name":"paths"},"rules":[]}`
)

var _ = Describe("Document 1, section 2: scopes of names", func() {
	It("an object of another namespace or of another kind may have the same name", func(ctx SpecContext) {
		one, two := namespace(ctx), namespace(ctx)
		for _, path := range []string{one + "/configmaps", two + "/configmaps", one + "/secrets"} {
			create(ctx, "/api/v1/namespaces/"+path, `{"metadata":{"name":"same"}}`)
		}
	})
	It("an object that is not namespaced has a name that is unique in the cluster", func(ctx SpecContext) {
		const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
		create(ctx, roles, `{"metadata":{"name":"unique"}}`)
		Expect(failed(send(ctx, launch.Request{Method: "POST", Path: roles, ContentType: inJSON, Body: `{"metadata":{"name":"unique"}}`}), 409).Reason).To(
			Equal(metav1.StatusReasonAlreadyExists))
	})
	It("a virtual type needs no name, and cannot be retrieved", func(ctx SpecContext) {
		const reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
		Expect(metadataOf(create(ctx, reviews, aReview))).NotTo(HaveKey("name"))
		Expect(send(ctx, launch.Request{Method: "GET", Path: reviews}).Status).To(Equal(405))
	})
	It("no kind is named List", func(ctx SpecContext) {
		for _, list := range []string{"/api/v1", "/apis/apps/v1"} {
			for _, resource := range get(ctx, list)["resources"].([]any) {
				Expect(resource).NotTo(HaveKeyWithValue("kind", "List"))
			}
		}
	})
	It("a body in protobuf with another prefix is refused", func(ctx SpecContext) {
		failed(send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", ContentType: "application/vnd.svc.protobuf", Body: "k8t\x00abc"}), 400)
	})
})

var _ = Describe("Document 1, section 4: paths", Ordered, func() {
	var ns string
	BeforeAll(func(ctx SpecContext) { ns = namespace(ctx) })
	DescribeTable("an operation has the method and the path of the table",
		func(ctx SpecContext, method, path, contentType, body string, status int, kind string) {
			resp := send(ctx, launch.Request{Method: method, Path: strings.ReplaceAll(path, "NS", ns), ContentType: contentType, Body: body})
			Expect(parse(resp, status)).To(HaveKeyWithValue("kind", kind))
		},
		Entry("create", "POST", "/api/v1/namespaces/NS/pods", inJSON, aPod, 201, "Pod"),
		Entry("create what is not namespaced", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", inJSON, aClusterRole, 201, "ClusterRole"),
		Entry("list in all namespaces", "GET", "/api/v1/pods", "", "", 200, "PodList"),
		Entry("list in a namespace", "GET", "/api/v1/namespaces/NS/pods", "", "", 200, "PodList"),
		Entry("list what is not namespaced", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", "", 200, "ClusterRoleList"),
		Entry("get what is not namespaced", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/paths", "", "", 200, "ClusterRole"),
		Entry("get in a namespace", "GET", "/api/v1/namespaces/NS/pods/p", "", "", 200, "Pod"),
		Entry("list namespaces", "GET", "/api/v1/namespaces", "", "", 200, "NamespaceList"),
		Entry("get a namespace", "GET", "/api/v1/namespaces/NS", "", "", 200, "Namespace"),
		Entry("patch", "PATCH", "/api/v1/namespaces/NS/pods/p", mergePatch, `{"metadata":{"labels":{"a":"b"}}}`, 200, "Pod"),
		Entry("a subresource", "GET", "/api/v1/namespaces/NS/pods/p/status", "", "", 200, "Pod"),
		Entry("update", "PUT", "/apis/rbac.authorization.k8s.io/v1/clusterroles/paths", inJSON, aClusterRole, 200, "ClusterRole"),
		Entry("a permission check", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", inJSON, aReview, 201, "SubjectAccessReview"),
		Entry("delete", "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/paths", "", "", 200, "Status"),
	)
	It("a request of one resource does not take several", func(ctx SpecContext) {
		collection := "/api/v1/namespaces/" + ns + "/configmaps"
		for _, kind := range []string{"ConfigMapList", "List"} {
			list := fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"items":[%s,%s]}`, kind, configMap(`"name":"one"`, `{}`), configMap(`"name":"two"`, `{}`))
			Expect(failed(send(ctx, launch.Request{Method: "POST", Path: collection, ContentType: inJSON, Body: list}), 400).Message).To(ContainSubstring(kind))
		}
		Expect(get(ctx, collection)["items"]).To(BeEmpty())
	})
	It("pretty is accepted, also with dryRun, and indents", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/" + ns + "/configmaps?dryRun=All&pretty=true", ContentType: inJSON, Body: configMap(`"name":"pretty"`, `{}`)})
		parse(resp, 201)
		Expect(resp.Body).To(ContainSubstring("\n  \"kind\": \"ConfigMap\""))
	})
	It("the response to a watch is chunked", func(ctx SpecContext) {
		config, err := rest.TLSConfigFor(server.Config)
		Expect(err).NotTo(HaveOccurred())
		config.NextProtos = []string{"http/1.1"} // HTTP/2 has no chunks
		transport := &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.Config.Host+"/api/v1/namespaces?watch=1&timeoutSeconds=1", http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		resp, err := transport.RoundTrip(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.TransferEncoding).To(ConsistOf("chunked"))
		Expect(resp.Header.Get("Content-Type")).To(HavePrefix(inJSON))
	})
	It("a client that prefers protobuf, and takes JSON, gets custom resources in JSON", func(ctx SpecContext) {
		path := define(ctx, "preferred", "")
		for _, p := range []string{path, "/api/v1/namespaces"} {
			resp := send(ctx, launch.Request{Method: "GET", Path: p, Accept: "application/vnd.svc.protobuf, application/json"})
			Expect(resp.Status).To(Equal(200))
			Expect(resp.Header.Get("Content-Type") == inJSON).To(Equal(p == path), p)
		}
	})
	It("a fatal error is named alone, at any level of field validation", func(ctx SpecContext) {
		for _, level := range []string{"Ignore", "Warn", "Strict"} {
			status := failed(send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/" + ns + "/configmaps?fieldValidation=" + level, ContentType: inJSON,
				Body: `{"metadata":{"name":"fatal","labels":7},"data":9,"bogus":1}`}), 400)
			Expect(status.Message).To(And(ContainSubstring("cannot unmarshal"), Not(ContainSubstring("bogus"))), level)
		}
	})
	It("a required field that is missing is an error", func(ctx SpecContext) {
		status := failed(send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/" + ns + "/pods", ContentType: inJSON, Body: `{"metadata":{"name":"bare"},"spec":{}}`}), 422)
		Expect(status.Message).To(ContainSubstring("spec.containers: Required value"))
	})
	It("continue with version 0 is served as continue without a version", func(ctx SpecContext) {
		page := metadataOf(get(ctx, "/api/v1/namespaces?limit=1"))
		next := parse(send(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces?limit=1&resourceVersion=0&continue=" + page["continue"].(string)}), 200)
		Expect(metadataOf(next)["resourceVersion"]).To(Equal(page["resourceVersion"]))
		Expect(next["items"]).To(HaveLen(1))
	})
})

var _ = Describe("Document 1, section 5: rights", func() {
	pods := func(verbs []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, Verbs: verbs}
	}
	It("a namespaced type is authorized in its namespace", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		as := allow(ctx, ns, "insider", pods([]string{"list"}, "pods"))
		soon(ctx, launch.Request{Method: "GET", Path: "/api/v1/namespaces/" + ns + "/pods", Header: as}, 200)
		for _, path := range []string{"/api/v1/namespaces/" + other + "/pods", "/api/v1/pods"} {
			failed(send(ctx, launch.Request{Method: "GET", Path: path, Header: as}), 403)
		}
	})
	It("a subresource is authorized apart from its parent", func(ctx SpecContext) {
		ns := namespace(ctx)
		path := "/api/v1/namespaces/" + ns + "/pods"
		create(ctx, path, aPod)
		parent := allow(ctx, ns, "parent", pods([]string{"get"}, "pods"))
		sub := allow(ctx, ns, "sub", pods([]string{"get"}, "pods/status"))
		soon(ctx, launch.Request{Method: "GET", Path: path + "/p", Header: parent}, 200)
		soon(ctx, launch.Request{Method: "GET", Path: path + "/p/status", Header: sub}, 200)
		failed(send(ctx, launch.Request{Method: "GET", Path: path + "/p/status", Header: parent}), 403)
		failed(send(ctx, launch.Request{Method: "GET", Path: path + "/p", Header: sub}), 403)
	})
	It("a dry run needs the rights of the same request", func(ctx SpecContext) {
		ns := namespace(ctx)
		path := "/api/v1/namespaces/" + ns + "/pods"
		create(ctx, path, aPod)
		patch := launch.Request{Method: "PATCH", Path: path + "/p?dryRun=All", ContentType: mergePatch, Body: `{"metadata":{"labels":{"a":"b"}}}`}
		patch.Header = allow(ctx, ns, "reader", pods([]string{"get"}, "pods"))
		soon(ctx, launch.Request{Method: "GET", Path: path + "/p", Header: patch.Header}, 200)
		failed(send(ctx, patch), 403)
		patch.Header = allow(ctx, ns, "patcher", pods([]string{"patch"}, "pods"))
		soon(ctx, patch, 200)
	})
	It("an apply needs the right to patch, and to create what does not exist", func(ctx SpecContext) {
		ns := namespace(ctx)
		maps := "/api/v1/namespaces/" + ns + "/configmaps"
		create(ctx, maps, configMap(`"name":"exists"`, `{}`))
		apply := func(name string, as map[string]string) launch.Request {
			return launch.Request{Method: "PATCH", Path: maps + "/" + name + "?fieldManager=m", ContentType: applyPatch, Body: `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1"}}`, Header: as}
		}
		as := allow(ctx, ns, "applier", pods([]string{"patch"}, "configmaps"))
		soon(ctx, apply("exists", as), 200)
		Expect(failed(send(ctx, apply("new", as)), 403).Message).To(ContainSubstring(`cannot create resource "configmaps"`))
		allow(ctx, ns, "applier", pods([]string{"create"}, "configmaps"))
		soon(ctx, apply("new", as), 201)
	})
})
