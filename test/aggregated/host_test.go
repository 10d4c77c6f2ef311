package aggregated

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

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

	It("deletes an object of the fleet whose owner is of the host", func(ctx SpecContext) {
		n := newNamespace()
		owner, err := hostClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		apply(onHost, fmt.Sprintf(`{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[
			{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, owner.UID), "create", "-n", n)
		Expect(hostClient.CoreV1().ConfigMaps(n).Delete(ctx, "owner", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() string { return kubectl(onHost, "get", "configmaps.core.svc.dev", "-n", n, "-o", "name") }).Should(BeEmpty())
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

	It("cannot be forged by headers from a client that is not the host's proxy", func(ctx SpecContext) {
		_, config := userOf("mallory", "")
		client, err := rest.HTTPClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, backendURL+"/apis/core.svc.dev/v1/pods", nil)
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("X-Remote-User", "admin")
		req.Header.Set("X-Remote-Group", "system:masters")
		resp, err := client.Do(req)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(resp.StatusCode).To(Equal(http.StatusForbidden))
	})
})

var _ = Describe("the fleet's own address", func() {
	It("has the whole API for clients that know Kubernetes' names only", func(ctx SpecContext) {
		n := newNamespace()
		Expect(kubectl(onFleet, "api-resources")).To(ContainSubstring("deployments"))
		kubectl(onFleet, "create", "deployment", "nginx", "--image=registry.example.com/nginx", "-n", n)
		kubectl(onFleet, "scale", "deployment", "nginx", "--replicas=3", "-n", n)
		Eventually(func() []string { return strings.Fields(kubectl(onFleet, "get", "pods", "-n", n, "-o", "name")) }).Should(HaveLen(3))
		Expect(kubectl(onFleet, "explain", "pod.spec.containers")).To(ContainSubstring("KIND:       Pod"))
		Expect(kubectl(onFleet, "auth", "whoami")).To(ContainSubstring("Username"))
		kubectl(onFleet, "logs", "deployment/nginx", "-n", n) // no node has the pods
	})

	It("keeps a watch open for longer than requests may take", func(ctx SpecContext) {
		n := newNamespace()
		watch, err := fleetClient.CoreV1().ConfigMaps(n).Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		_, err = fleetClient.CoreV1().ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(watch.ResultChan()).Should(Receive())
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
