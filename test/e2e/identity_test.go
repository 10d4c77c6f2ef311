package e2e

import (
	"net/http"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("identity", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("authenticates the administrator by certificate", func() {
		who := k.run("auth", "whoami", "-o", "json")
		Expect(who).To(And(ContainSubstring(`"system:masters"`), ContainSubstring(`"system:authenticated"`)))
		Expect(who).NotTo(ContainSubstring("credential-id"), "release 1.28 does not tell it")
		Expect(k.run("auth", "can-i", "delete", "nodes")).To(Equal("yes\n"))
	})

	It("authenticates a user by a static token, who may only discover", func() {
		alice := []string{"--token=" + aliceToken, "--kubeconfig=" + withoutCertificate(k)}
		Expect(k.run(append(alice, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.uid}")...)).To(Equal("alice alice-uid"))
		Expect(k.run(append(alice, "version", "-o", "json")...)).To(ContainSubstring("serverVersion"))
		Expect(k.run(append(alice, "api-resources", "-o", "name")...)).To(ContainSubstring("deployments.apps"))
		Expect(k.fails("", append(alice, "get", "pods")...)).
			To(ContainSubstring(`pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "` + k.Namespace + `"`))
		Expect(k.fails("", append(alice, "create", "cm", "x")...)).To(ContainSubstring("is forbidden"))
	})

	It("authenticates a service account by its token, until the account is deleted", func() {
		k.run("create", "serviceaccount", "robot")
		token := strings.TrimSpace(k.run("create", "token", "robot", "--duration=10m"))
		robot := []string{"--token=" + token, "--kubeconfig=" + withoutCertificate(k)}
		who := k.run(append(robot, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")...)
		Expect(who).To(Equal("system:serviceaccount:" + k.Namespace + `:robot ["system:serviceaccounts","system:serviceaccounts:` + k.Namespace + `","system:authenticated"]`))
		Expect(k.fails("", append(robot, "get", "pods")...)).To(ContainSubstring(`User "system:serviceaccount:` + k.Namespace + `:robot" cannot list`))
		Expect(k.run(append(robot, "get", "--raw", "/openid/v1/jwks")...)).To(ContainSubstring(`"alg":"ES256"`))
		Expect(k.run(append(robot, "get", "--raw", "/.well-known/openid-configuration")...)).To(ContainSubstring(`"issuer":"https://kubernetes.default.svc.cluster.local"`))

		forVault := strings.TrimSpace(k.run("create", "token", "robot", "--audience=vault"))
		Expect(send(request{method: http.MethodGet, path: "/version", token: forVault, anonymous: true}).status).To(Equal(401))
		review := `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "` + forVault + `", "audiences": ["vault"]}}`
		Expect(k.pipe(review, "create", "-f", "-", "-o", "jsonpath={.status.authenticated} {.status.audiences}")).To(Equal(`true ["vault"]`))

		k.run("delete", "serviceaccount", "robot")
		// A valid token is cached for some seconds.
		Eventually(func() int {
			return send(request{method: http.MethodGet, path: "/version", token: token, anonymous: true}).status
		}).Should(Equal(401))
	})

	It("binds a token to a secret, and reports why it cannot", func() {
		k.run("create", "serviceaccount", "robot")
		k.run("create", "secret", "generic", "leash")
		bound := strings.TrimSpace(k.run("create", "token", "robot", "--bound-object-kind=Secret", "--bound-object-name=leash"))
		k.run("delete", "secret", "leash")
		Eventually(func() int { // the watch cache follows the deletion a moment later
			return send(request{method: http.MethodGet, path: "/version", token: bound, anonymous: true}).status
		}).Should(Equal(401))
		k.pipe(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "leash"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}}`, "create", "-f", "-")
		bound = strings.TrimSpace(k.run("create", "token", "robot", "--bound-object-kind=Pod", "--bound-object-name=leash"))
		replay := func() int {
			return send(request{method: http.MethodGet, path: "/version", token: bound, anonymous: true}).status
		}
		Expect(replay()).To(Equal(200))
		k.run("delete", "pod", "leash", "--force", "--grace-period=0")
		Eventually(replay).Should(Equal(401), "the token of a pod that is gone")
		Expect(k.fails("", "create", "token", "robot", "--duration=1m")).To(ContainSubstring("spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"))
		Expect(k.fails("", "create", "token", "robot", "--bound-object-kind=Pod", "--bound-object-name=none")).To(ContainSubstring(`pods "none" not found`))
		Expect(k.fails("", "create", "token", "absent")).To(ContainSubstring(`serviceaccounts "absent" not found`))
	})

	It("lets a node read what its pods refer to, and nothing of other nodes' pods", func() {
		k.run("create", "secret", "generic", "mine")
		k.run("create", "secret", "generic", "other")
		for node, secret := range map[string]string{"n1": "mine", "n2": "other"} {
			k.pipe(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "on-`+node+`"}, "spec": {"nodeName": "`+node+`",
				"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "`+secret+`"}], "containers": [{"name": "c", "image": "i"}]}}`, "create", "-f", "-")
		}
		n1 := []string{"--as=system:node:n1", "--as-group=system:nodes", "--as-group=system:authenticated"}
		Expect(k.run(append(n1, "get", "secret", "mine", "-o", "name")...)).To(Equal("secret/mine\n"))
		Expect(k.fails("", append(n1, "get", "secret", "other")...)).To(ContainSubstring("no relationship found between node 'n1' and this object"))
		Expect(k.fails("", append(n1, "get", "secrets")...)).To(ContainSubstring("cannot list"))
		k.run("create", "serviceaccount", "unused")
		Expect(k.fails("", append(n1, "create", "token", "unused")...)).To(ContainSubstring("no relationship found"))
		k.run("delete", "pod", "on-n1", "--grace-period=0", "--force")
		Eventually(k.unless(append(n1, "get", "secret", "mine")...)).Should(ContainSubstring("no relationship found"))
	})

	It("grants by role bindings", func(ctx SpecContext) {
		Expect(k.fails("", "get", "pods", "--as=jane")).To(ContainSubstring(`User "jane" cannot list resource "pods"`))
		k.run("create", "role", "reader", "--verb=list", "--resource=pods")
		k.run("create", "rolebinding", "jane", "--role=reader", "--user=jane")
		Eventually(func() error {
			_, _, err := k.Run(ctx, "", "get", "pods", "--as=jane")
			return err
		}).Should(Succeed())
		Expect(k.fails("", "get", "secrets", "--as=jane")).To(ContainSubstring(`User "jane" cannot list resource "secrets"`))
	})

	DescribeTable("lets anonymous users read health and version, and nothing else", func(path, token string, status int) {
		answer := send(request{method: http.MethodGet, path: path, token: token, anonymous: true})
		if status == 200 { // a busy server may be unhealthy for a moment
			Eventually(func() int {
				answer = send(request{method: http.MethodGet, path: path, token: token, anonymous: true})
				return answer.status
			}).ShouldNot(Equal(500))
		}
		Expect(answer.status).To(Equal(status), answer.body)
	},
		Entry(nil, "/livez", "", 200),
		Entry(nil, "/readyz", "", 200),
		Entry(nil, "/healthz", "", 200),
		Entry(nil, "/version", "", 200),
		Entry("anonymous users may not list", "/api/v1/pods", "", 403),
		Entry("anonymous users may not read metrics", "/metrics", "", 403),
		Entry("a wrong token is not an anonymous user", "/version", "nonsense", 401),
		Entry("a user without rights may discover", "/apis/apps/v1", aliceToken, 200),
		Entry("a user without rights may not list", "/api/v1/secrets", aliceToken, 403),
		Entry("no profile without rights", "/debug/pprof/", "", 403),
	)

	It("ignores headers that only a trusted proxy may send", func() {
		answer := send(request{method: http.MethodGet, path: "/api/v1/secrets", anonymous: true,
			header: map[string]string{"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}})
		Expect(answer.status).To(Equal(403))
	})

	It("lets an administrator impersonate another user", func() {
		Expect(k.fails("", "get", "pods", "--as=bob")).To(ContainSubstring(`User "bob" cannot list resource "pods"`))
	})
})

var _ = Describe("kubectl cluster-info and config", everyRelease, func() {
	It("show the server", func(ctx SpecContext) {
		k := newSandbox(ctx)
		Expect(k.run("cluster-info")).To(ContainSubstring(server.Config.Host))
		Expect(k.run("config", "view", "--minify")).To(And(ContainSubstring("server: "+server.Config.Host), ContainSubstring("DATA+OMITTED")))
		Expect(k.run("config", "current-context")).NotTo(BeEmpty())
		Expect(k.run("get", "ns", "-o", "name")).To(And(ContainSubstring("namespace/default\n"), ContainSubstring("namespace/kube-system\n")))
	})
})

// withoutCertificate writes a kubeconfig that names the server and its CA only.
func withoutCertificate(k *sandbox) string {
	GinkgoHelper()
	path := GinkgoT().TempDir() + "/config"
	fresh := k.with("KUBECONFIG=" + path)
	ca := path + ".ca"
	Expect(os.WriteFile(ca, server.Config.CAData, 0o600)).To(Succeed())
	fresh.run("config", "set-cluster", "svc", "--server="+server.Config.Host, "--certificate-authority="+ca, "--embed-certs")
	fresh.run("config", "set-context", "svc", "--cluster=svc")
	fresh.run("config", "use-context", "svc")
	return path
}
