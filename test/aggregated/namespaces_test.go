package aggregated

import (
	"net/http"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"svc.dev/svc/test/launch"
)

// A second fleet, whose clients connect to it directly: the host registers one server for
// the groups of a domain.
var _ = Describe("a fleet of some namespaces", Ordered, func() {
	var (
		team, other string
		url         string
		admin       launch.Kubectl
	)
	// as returns kubectl and the configuration of a user at this fleet's own address.
	as := func(user string, groups ...string) (launch.Kubectl, *rest.Config) {
		GinkgoHelper()
		file := filepath.Join(dir, "some-"+user)
		Expect(host.authority.Connection(file, url+fleetPath, user, groups...)).To(Succeed())
		config, err := clientcmd.BuildConfigFromFlags("", file)
		Expect(err).NotTo(HaveOccurred())
		return launch.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home-some-"+user)}, config
	}

	BeforeAll(func(ctx SpecContext) {
		team = newNamespace()
		other = team + "-other"
		kubectl(onHost, "create", "namespace", other)
		DeferCleanup(func() { kubectl(onHost, "delete", "namespace", other, "--wait=false") })
		port, err := launch.FreePort()
		Expect(err).NotTo(HaveOccurred())
		url = "https://127.0.0.1:" + port
		instead := outsideOfPods(port)
		instead["namespaces"] = team
		startServer(ctx, url, filepath.Join(dir, "svc-apiserver"), append(manifestArgs(ctx, "svc-apiserver", instead, "namespace-scoped"), "--etcd-prefix=/fleet-of-some"))
		admin, _ = as("admin", "system:masters")
	})

	It("creates objects in these namespaces only", func() {
		kubectl(admin, "create", "configmap", "ours", "-n", team)
		Expect(fails(admin, "", "create", "configmap", "theirs", "-n", other)).To(ContainSubstring(`namespaces "` + other + `" not found: the fleet serves `))
	})

	It("shows these namespaces only, and those that every fleet has", func() {
		Expect(kubectl(admin, "get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}")).To(Equal("default kube-node-lease kube-system " + team))
		Expect(fails(admin, "", "get", "namespace", other)).To(ContainSubstring("not found"))
	})

	It("lets users with a role in each of its namespaces read all, and no others", func(ctx SpecContext) {
		carol, config := as("carol")
		apply(onHost, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"carol-`+team+`"},"rules":[
			{"apiGroups":["core.svc.dev"],"resources":["configmaps","nodes"],"verbs":["get","list"]}]}`, "create")
		apply(onHost, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"carol-address-`+team+`"},"rules":[
			{"apiGroups":["fleet.svc.dev"],"resources":["fleets/proxy"],"verbs":["get"]}]}`, "create")
		kubectl(onHost, "create", "clusterrolebinding", "carol-address-"+team, "--clusterrole=carol-address-"+team, "--user=carol")
		DeferCleanup(func() {
			kubectl(onHost, "delete", "clusterrole", "carol-"+team, "carol-address-"+team)
			kubectl(onHost, "delete", "clusterrolebinding", "carol-address-"+team)
		})
		for _, n := range []string{"default", "kube-node-lease", "kube-system"} {
			kubectl(onHost, "create", "rolebinding", "carol", "-n", n, "--clusterrole=carol-"+team, "--user=carol")
			DeferCleanup(func() { kubectl(onHost, "delete", "rolebinding", "carol", "-n", n) })
		}
		Eventually(func() int {
			return send(ctx, config, launch.Request{Method: "GET", Path: "/api/v1/namespaces/kube-system/configmaps"}).Status
		}).Should(Equal(http.StatusOK))
		Expect(send(ctx, config, launch.Request{Method: "GET", Path: "/api/v1/configmaps"}).Status).To(Equal(http.StatusForbidden), "without a role in one")
		kubectl(onHost, "create", "rolebinding", "carol", "-n", team, "--clusterrole=carol-"+team, "--user=carol")
		Eventually(func() string {
			stdout, _, _ := carol.Run(ctx, "", "get", "configmaps", "-A", "-o", "name")
			return stdout
		}).Should(ContainSubstring("configmap/ours"))
		Expect(fails(carol, "", "get", "nodes")).To(ContainSubstring("forbidden"), "they are in no namespace")
		Expect(fails(carol, "", "get", "configmaps", "-n", other)).To(ContainSubstring("forbidden"))
	})

	It("has controllers that work with rights in these namespaces only", func(ctx SpecContext) {
		const account, user = "svc-controller-manager", "manager-of-some"
		roles := rolesOf(render(ctx, "namespace-scoped"), account, user)
		apply(onHost, roles, "apply", "--server-side")
		DeferCleanup(func() { apply(onHost, roles, "delete") })
		kubectl(onHost, "create", "rolebinding", account, "-n", team, "--clusterrole="+account+"-fleet", "--user="+user)
		manager, _ := as(user)
		for _, args := range [][]string{{"get", "leases", "-n", "kube-system"}, {"get", "pods", "-A"}} {
			Eventually(func() error { _, _, err := manager.Run(ctx, "", args...); return err }).Should(Succeed(), "%v", args)
		}
		Expect(fails(manager, "", "get", "pods", "-n", other)).To(ContainSubstring("forbidden"))
		startManager(ctx, manager.Kubeconfig)
		kubectl(admin, "create", "deployment", "web", "--image=registry.example.com/web", "-n", team)
		Eventually(func() string { return kubectl(admin, "get", "pods", "-n", team, "-o", "name") }).Should(HavePrefix("pod/web-"))
	})
})
