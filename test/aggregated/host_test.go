package aggregated

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"svc.dev/svc/apiserver/registration"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/test/launch"
)

// userOf returns kubectl and a configuration for a user of the host, at a path of it.
func userOf(name, path string, groups ...string) (launch.Kubectl, *rest.Config) {
	GinkgoHelper()
	file := filepath.Join(dir, fmt.Sprintf("user-%s-%d", name, time.Now().UnixNano()))
	Expect(host.authority.Connection(file, host.config.Host+path, name, groups...)).To(Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", file)
	Expect(err).NotTo(HaveOccurred())
	return launch.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home-"+name)}, config
}

var _ = Describe("the host's namespaces", func() {
	It("can be read at the fleet's own address, and written at the host only", func() {
		n := newNamespace()
		Expect(kubectl(onFleet, "get", "namespaces")).To(ContainSubstring(n))
		Expect(kubectl(onFleet, "get", "namespace", n, "-o", "jsonpath={.metadata.name}")).To(Equal(n))
		Expect(fails(onFleet, "", "create", "namespace", "other")).To(ContainSubstring("namespaces are the host's: write them there"))
		Expect(fails(onFleet, "", "delete", "namespace", n)).To(ContainSubstring("namespaces are the host's"))
		Expect(fails(onHost, "", "get", "--raw", "/apis/core.svc.dev/v1/namespaces")).To(ContainSubstring("namespaces are the host's"))
	})

	It("must exist, and must not be terminating, for an object to be created", func(ctx SpecContext) {
		Expect(fails(onHost, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"absent"}}`, "create", "-f", "-")).
			To(ContainSubstring(`namespaces "absent" not found`))
		n := newNamespace()
		apply(onHost, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["example.com/hold"]}}`, "create", "-n", n)
		kubectl(onHost, "delete", "namespace", n, "--wait=false")
		Eventually(func() string {
			_, stderr, _ := onHost.Run(ctx, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"generateName":"b-"}}`, "create", "-n", n, "-f", "-")
			return stderr
		}).Should(ContainSubstring("because it is being terminated"))
		kubectl(onHost, "patch", "configmaps.core.svc.dev", "a", "-n", n, "--type=merge", "-p", `{"metadata":{"finalizers":[]}}`)
		Eventually(func() error { _, _, err := onHost.Run(ctx, "", "get", "namespace", n); return err }).Should(HaveOccurred())
	})

	It("take their objects of the fleet with them when they are deleted", func(ctx SpecContext) {
		n := newNamespace()
		for i := range 1000 {
			_, err := fleetClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		started := time.Now()
		kubectl(onHost, "delete", "namespace", n)
		AddReportEntry("deletion of a namespace with 1,000 objects", time.Since(started).String())
		left, err := fleetClient.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.namespace=" + n})
		Expect(err).NotTo(HaveOccurred())
		Expect(left.Items).To(BeEmpty())
	})
})

var _ = Describe("garbage collection by the host", func() {
	It("deletes what a deleted owner of the fleet has owned", func(ctx SpecContext) {
		n := newNamespace()
		apply(onHost, deployment, "create", "-n", n)
		pods := func() string { return kubectl(onHost, "get", "pods.core.svc.dev", "-n", n, "-o", "name") }
		Eventually(pods).ShouldNot(BeEmpty())
		kubectl(onHost, "delete", "deployments.apps.svc.dev", "web", "-n", n)
		Eventually(func() string {
			return kubectl(onHost, "get", "replicasets.apps.svc.dev,pods.core.svc.dev", "-n", n, "-o", "name")
		}).Should(BeEmpty())
	})

	DescribeTable("deletes an object of the fleet whose owner is of the host", func(ctx SpecContext, at *launch.Kubectl, apiVersion, ownerVersion string) {
		n := newNamespace()
		owner, err := hostClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		apply(*at, fmt.Sprintf(`{"apiVersion":%q,"kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[
			{"apiVersion":%q,"kind":"ConfigMap","name":"owner","uid":%q}]}}`, apiVersion, ownerVersion, owner.UID), "create", "-n", n)
		Expect(hostClient.CoreV1().ConfigMaps(n).Delete(ctx, "owner", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() string { return kubectl(onHost, "get", "configmaps.core.svc.dev", "-n", n, "-o", "name") }).Should(BeEmpty())
	},
		Entry("written at the host", &onHost, "core.svc.dev/v1", "v1"),
		Entry("written at the fleet's own address", &onFleet, "v1", "core.host.svc.dev/v1"),
	)

	// ofFleet creates an owner in the fleet and an object of the host that it owns, and
	// returns their namespace.
	ofFleet := func(ctx context.Context) string {
		GinkgoHelper()
		n := newNamespace()
		owner, err := fleetClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = hostClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "core.svc.dev/v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: new(true)}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return n
	}
	gone := func(ctx context.Context, client kubernetes.Interface, n, name string) func() bool {
		return func() bool {
			_, err := client.CoreV1().ConfigMaps(n).Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}
	}

	DescribeTable("deletes an object of the host whose owner is of the fleet", func(ctx SpecContext, at *launch.Kubectl, resource, cascade string) {
		n := ofFleet(ctx)
		kubectl(*at, "delete", resource, "owner", "-n", n, "--cascade="+cascade)
		Eventually(gone(ctx, hostClient, n, "owned")).Should(BeTrue())
		Expect(gone(ctx, fleetClient, n, "owner")()).To(BeTrue())
	},
		Entry("after it, deleted at the host", &onHost, "configmaps.core.svc.dev", "background"),
		Entry("before it, deleted at the host", &onHost, "configmaps.core.svc.dev", "foreground"),
		Entry("after it, deleted at the fleet's own address", &onFleet, "configmaps", "background"),
		Entry("before it, deleted at the fleet's own address", &onFleet, "configmaps", "foreground"),
	)

	It("leaves an object of the host whose owner of the fleet is deleted without it", func(ctx SpecContext) {
		n := ofFleet(ctx)
		// The host watches the owner and what it owns apart from each other: it has observed
		// "owned" when it has collected this, which is created later.
		_, err := hostClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "observed", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "core.svc.dev/v1", Kind: "ConfigMap", Name: "absent", UID: "5f6c0a54-6a7e-4d8a-9d1c-000000000000"}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(gone(ctx, hostClient, n, "observed")).Should(BeTrue())
		kubectl(onFleet, "delete", "configmap", "owner", "-n", n, "--cascade=orphan")
		Eventually(gone(ctx, fleetClient, n, "owner")).Should(BeTrue())
		left, err := hostClient.CoreV1().ConfigMaps(n).Get(ctx, "owned", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(left.OwnerReferences).To(BeEmpty())
	})
})

var _ = Describe("the host's users", func() {
	It("may do in the fleet what the host's roles say of the domain's names", func() {
		n := newNamespace()
		alice, _ := userOf("alice", "")
		Expect(fails(alice, "", "get", "pods.core.svc.dev", "-n", n)).To(ContainSubstring(`User "alice" cannot list resource "pods" in API group "core.svc.dev"`))
		kubectl(onHost, "create", "role", "reader", "-n", n, "--verb=get,list", "--resource=pods.core.svc.dev")
		kubectl(onHost, "create", "rolebinding", "reader", "-n", n, "--role=reader", "--user=alice")
		Eventually(func() error {
			_, _, err := alice.Run(GinkgoT().Context(), "", "get", "pods.core.svc.dev", "-n", n)
			return err
		}).Should(Succeed())
		Expect(fails(alice, "", "get", "configmaps.core.svc.dev", "-n", n)).To(ContainSubstring("forbidden"))
		Expect(fails(alice, "", "get", "pods", "-n", n)).To(ContainSubstring("forbidden"), "the host's own pods")
	})

	It("need the right to the fleet's own address, and within it the rights to the domain's names", func() {
		n := newNamespace()
		bob, _ := userOf("bob", fleetPath)
		Expect(fails(bob, "", "get", "--raw", "/api/v1/namespaces/"+n+"/pods")).To(ContainSubstring("forbidden"))
		apply(onHost, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"fleet-user-`+n+`"},
			"rules":[{"apiGroups":["fleet.svc.dev"],"resources":["fleets/proxy"],"verbs":["get"]}]}`, "create")
		kubectl(onHost, "create", "clusterrolebinding", "fleet-user-"+n, "--clusterrole=fleet-user-"+n, "--user=bob")
		DeferCleanup(func() { kubectl(onHost, "delete", "clusterrole,clusterrolebinding", "fleet-user-"+n) })
		Eventually(func() string { _, stderr, _ := bob.Run(GinkgoT().Context(), "", "get", "pods", "-n", n); return stderr }).
			Should(ContainSubstring(`User "bob" cannot list resource "pods"`))
		kubectl(onHost, "create", "role", "bob", "-n", n, "--verb=get,list", "--resource=pods.core.svc.dev")
		kubectl(onHost, "create", "rolebinding", "bob", "-n", n, "--role=bob", "--user=bob")
		Eventually(func() error { _, _, err := bob.Run(GinkgoT().Context(), "", "get", "pods", "-n", n); return err }).Should(Succeed())
		Expect(fails(bob, "", "create", "configmap", "x", "-n", n)).To(ContainSubstring("forbidden"))
	})

	It("are the same users in the fleet", func(ctx SpecContext) {
		review, err := fleetClient.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		same, err := hostClient.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.UserInfo.Username).To(Equal(same.Status.UserInfo.Username))
		Expect(review.Status.UserInfo.Groups).To(ContainElement("system:masters"))
	})

	It("may connect to the fleet's server directly, by a certificate or by a token of the host", func(ctx SpecContext) {
		n := newNamespace()
		_, config := userOf("alice", "")
		direct := rest.CopyConfig(config)
		direct.Host = backendURL
		status, body, err := launch.Get(ctx, direct, "/apis/core.svc.dev/v1/namespaces/"+n+"/pods")
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusForbidden))
		Expect(body).To(ContainSubstring(`User \"alice\"`))

		_, err = hostClient.CoreV1().ServiceAccounts(n).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		token, err := hostClient.CoreV1().ServiceAccounts(n).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		bearer := &rest.Config{Host: backendURL, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAFile: host.authority.File}}
		status, body, err = launch.Get(ctx, bearer, "/apis/core.svc.dev/v1/namespaces/"+n+"/pods")
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusForbidden))
		Expect(body).To(ContainSubstring("system:serviceaccount:" + n + ":robot"))
	})

	DescribeTable("cannot be forged by headers from a client that is not the host's proxy", func(ctx SpecContext, anonymous bool, user string) {
		_, config := userOf("mallory", "")
		direct := rest.CopyConfig(config)
		direct.Host = backendURL
		answer := send(ctx, direct, launch.Request{Method: "GET", Path: "/apis/core.svc.dev/v1/pods", Anonymous: anonymous, Header: map[string]string{
			"X-Remote-User": "forged", "X-Remote-Uid": "1", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all",
		}})
		Expect(answer.Status).To(Equal(http.StatusForbidden))
		Expect(answer.Body).To(And(ContainSubstring(`User \"`+user+`\" cannot list resource \"pods\"`), Not(ContainSubstring("forged"))))
	},
		Entry("without a certificate it is anonymous", true, "system:anonymous"),
		Entry("with a certificate it is that user", false, "mallory"),
	)

	It("are told where their rights are listed", func(ctx SpecContext) {
		review, err := fleetClient.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(review.Status.Incomplete).To(BeTrue())
		Expect(review.Status.EvaluationError).To(ContainSubstring("run 'kubectl auth can-i --list' with a kubeconfig of the host"))
		_, stderr, err := onFleet.Run(ctx, "", "auth", "can-i", "--list", "-n", "default")
		Expect(err).NotTo(HaveOccurred())
		Expect(stderr).To(And(ContainSubstring("the list may be incomplete"), ContainSubstring("run 'kubectl auth can-i --list' with a kubeconfig of the host")))

		By("the list at the host, which has the names of the domain")
		n := newNamespace()
		carol, _ := userOf("carol", "")
		kubectl(onHost, "create", "role", "reader", "-n", n, "--verb=get,list", "--resource=pods.core.svc.dev")
		kubectl(onHost, "create", "rolebinding", "reader", "-n", n, "--role=reader", "--user=carol")
		Eventually(out(carol, "", "auth", "can-i", "--list", "-n", n)).Should(MatchRegexp(`(?m)^pods\.core\.svc\.dev +\[\] +\[\] +\[get list\]`))

		By("one right, at the fleet's own address")
		Expect(kubectl(onFleet, "auth", "can-i", "list", "pods", "-n", n)).To(Equal("yes\n"))
	})
})

var _ = Describe("the fleet's own address", func() {
	It("has the whole API for clients that know Kubernetes' names only", func(ctx SpecContext) {
		n := newNamespace()
		Eventually(out(onFleet, "", "api-resources")).Should(ContainSubstring("deployments"))
		kubectl(onFleet, "create", "deployment", "nginx", "--image=registry.example.com/nginx", "-n", n)
		kubectl(onFleet, "scale", "deployment", "nginx", "--replicas=3", "-n", n)
		Eventually(func() []string { return strings.Fields(kubectl(onFleet, "get", "pods", "-n", n, "-o", "name")) }).Should(HaveLen(3))
		Expect(kubectl(onFleet, "explain", "pod.spec.containers")).To(ContainSubstring("KIND:       Pod"))
		Expect(kubectl(onFleet, "auth", "whoami")).To(ContainSubstring("Username"))
		kubectl(onFleet, "logs", "deployment/nginx", "-n", n) // no node has the pods
	})

	It("keeps a watch open for longer than requests may take", func(ctx SpecContext) {
		n := newNamespace()
		_, err := fleetClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The host ends what it does not take for long-running after this time.
		const mayTake = time.Second
		began := time.Now()
		line := lineOf(ctx, fleetPath+"/api/v1/namespaces/"+n+"/configmaps?watch=1&timeout="+mayTake.String(), `"late"`, func() {
			Eventually(func() time.Duration { return time.Since(began) }).Should(BeNumerically(">", 2*mayTake))
			kubectl(onFleet, "create", "configmap", "late", "-n", n)
		})
		Expect(line).To(ContainSubstring(`"ADDED"`))
	})

	It("has Kubernetes' discovery and OpenAPI documents, complete", func(ctx SpecContext) {
		groups, err := registration.New(release.Default, domain)
		Expect(err).NotTo(HaveOccurred())
		var want []string
		for _, gv := range groups.Versions {
			if gv.Group == groups.Names.FleetGroup() {
				continue // the host's way to this address
			}
			gv.Group = groups.Names.Stored(gv.Group)
			want = append(want, gv.String())
		}
		Eventually(ctx, func(g Gomega) { // the definitions of other specs end meanwhile
			_, lists, err := fleetClient.Discovery().ServerGroupsAndResources()
			g.Expect(err).NotTo(HaveOccurred())
			var got []string
			for _, list := range lists {
				got = append(got, list.GroupVersion)
				g.Expect(list.APIResources).NotTo(BeEmpty(), list.GroupVersion)
			}
			g.Expect(got).To(ContainElements(want))
			for _, version := range []string{"v2", "v2beta1"} {
				var served []string
				for _, path := range []string{"/api", "/apis"} {
					aggregated := send(ctx, host.config, launch.Request{Method: "GET", Path: fleetPath + path,
						Accept: "application/json;g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"})
					g.Expect(aggregated.Body).To(ContainSubstring(`"kind":"APIGroupDiscoveryList"`), version)
					for _, group := range parse(aggregated.Body)["items"].([]any) {
						name, _ := group.(object)["metadata"].(object)["name"].(string) // none of the core group
						for _, v := range group.(object)["versions"].([]any) {
							g.Expect(v).To(HaveKeyWithValue("freshness", "Current"), name)
							g.Expect(v).To(HaveKeyWithValue("resources", Not(BeEmpty())), name)
							served = append(served, schema.GroupVersion{Group: name, Version: v.(object)["version"].(string)}.String())
						}
					}
				}
				g.Expect(served).To(ContainElements(want), version)
			}
		}).Should(Succeed())
		document, err := fleetClient.Discovery().OpenAPISchema()
		Expect(err).NotTo(HaveOccurred())
		var paths []string
		for _, path := range document.GetPaths().GetPath() {
			paths = append(paths, path.GetName())
		}
		Expect(paths).To(ContainElements("/api/v1/namespaces/{namespace}/pods/{name}/exec", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"))
		v3, err := fleetClient.Discovery().OpenAPIV3().Paths()
		Expect(err).NotTo(HaveOccurred())
		for _, gv := range want {
			root := "apis/" + gv
			if !strings.Contains(gv, "/") {
				root = "api/" + gv
			}
			Expect(v3).To(HaveKey(root))
			document, err := v3[root].Schema("application/json")
			Expect(err).NotTo(HaveOccurred(), root)
			Expect(string(document)).To(ContainSubstring(`"openapi":"3.0`), root)
		}
	})

	It("is one of this fleet only", func() {
		Expect(fails(onHost, "", "get", "--raw", "/apis/fleet.svc.dev/v1/fleets/other/proxy/api/v1/pods")).To(ContainSubstring(`fleet "other" not found`))
	})
})

var _ = Describe("bad flags", func() {
	DescribeTable("are refused in one line that names the flag", func(ctx SpecContext, message string, flags ...string) {
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		p, err := launch.Start(nil, binary, append([]string{"apiserver", "--etcd-servers=" + host.etcd, "--cert-dir=" + dir, "--secure-port=1"}, flags...)...)
		Expect(err).NotTo(HaveOccurred())
		code, err := p.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(1))
		Expect(p.Output()).To(ContainSubstring(message))
	},
		Entry("Kubernetes' own domain", "--group-domain: \"k8s.io\" belongs to Kubernetes", "--group-domain=k8s.io"),
		Entry("no domain", "--group-domain: \"x\" has one label only", "--group-domain=x"),
		Entry("no kubeconfig outside of a pod", "--host-kubeconfig: ", "--group-domain=svc.dev"),
		Entry("a kubeconfig that is absent", "--host-kubeconfig: /none", "--group-domain=svc.dev", "--host-kubeconfig=/none"),
		Entry("a kubeconfig without a domain", "--host-kubeconfig: has no effect without --group-domain", "--host-kubeconfig=/none"),
		Entry("namespaces without a domain", "--namespaces: has no effect without --group-domain", "--namespaces=team"),
		Entry("no namespaces", "--namespaces: name at least one namespace", "--group-domain=svc.dev", "--namespaces="),
		Entry("a namespace that cannot be", "--namespaces: \"Team\": ", "--group-domain=svc.dev", "--namespaces=Team"),
		Entry("an authorizer of its own", "--authorization-mode: with --group-domain the host recognises and authorizes users", "--group-domain=svc.dev", "--authorization-mode=RBAC"),
	)
})
