package aggregated

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/jointoken"
	"svc.dev/svc/svclet/certificates"
	"svc.dev/svc/svclet/join"
	"svc.dev/svc/test/launch"
)

// What `svclet join --group-domain` and svclet do until the node registers itself: running
// svclet takes root, and the suite of HOST=pods does that.
var _ = Describe("a machine that joins by a token of the host", func() {
	It("verifies the host, gets a certificate once an administrator approves, and is no node of the host", func(ctx SpecContext) {
		const node, user = "rack-7", domain + ":node:rack-7"
		grantMachines(ctx)

		By("the command that an administrator of the host prints")
		binary, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		printed, err := exec.CommandContext(ctx, binary, "token", "create", "--print-join-command", "--group-domain="+domain,
			"--server="+host.config.Host, "--svcconfig="+host.kubeconfig).Output()
		Expect(err).NotTo(HaveOccurred())
		words := strings.Fields(string(printed))
		Expect(words).To(HaveLen(9), string(printed))
		Expect(strings.Join(words[:4], " ") + strings.Join(words[5:8], " ")).To(Equal("svclet join " + host.config.Host + " --token--group-domain " + domain + " --ca-cert-hash"))
		id, key, err := jointoken.Parse(words[4])
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { kubectl(onHost, "delete", "secret", "-n", "kube-system", "bootstrap-token-"+id) })

		By("the authority of the host")
		authority, err := join.Discovery{Server: host.config.Host, TokenID: id, TokenKey: key, Pins: words[8:], Clock: clock.RealClock{}}.Authority(ctx)
		Expect(err).NotTo(HaveOccurred())
		files := join.Files{Dir: GinkgoT().TempDir()}
		Expect(files.Write(host.config.Host+fleetPath, words[4], authority)).To(Succeed())

		By("the token, with which the release of the fleet is to be had and nothing else")
		Expect(join.OlderRelease(ctx, files.Bootstrap(), "v99.0.0")).To(Equal("v" + release.Default.String() + ".0"))
		bootstrap := clientOf(files.Bootstrap())
		_, err = bootstrap.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)

		By("the request, which waits at the host for an administrator")
		joined := startBootstrap(certificates.Bootstrap{Node: node, File: files.Bootstrap(), Connection: files.Connection(), Dir: files.Dir, Clock: clock.RealClock{}})
		var request string
		Eventually(func() string {
			request = kubectl(onHost, "get", "csr", "-o", `jsonpath={.items[?(@.spec.signerName=="kubernetes.io/kube-apiserver-client")].metadata.name}`)
			return request
		}).ShouldNot(BeEmpty())
		DeferCleanup(func() { kubectl(onHost, "delete", "csr", request) })
		Expect(kubectl(onHost, "get", "csr", request, "-o", "jsonpath={.spec.username} {.status.conditions}")).To(Equal("system:bootstrap:"+id+" "), "nothing approves it by itself")
		Expect(joined).NotTo(Receive())
		kubectl(onHost, "certificate", "approve", request)
		Eventually(joined).Should(Receive(BeNil()))

		By("the machine in the fleet")
		machine := clientOf(files.Connection())
		_, err = machine.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { kubectl(onFleet, "delete", "node", node) })
		Expect(kubectl(onHost, "get", "nodes.core.svc.dev", node, "-o", "name")).To(Equal("node.core.svc.dev/" + node + "\n"))
		_, err = machine.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rack-8"}}, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("is not allowed to modify node")), "nor changes it those of other machines")

		By("the machine at the host, where it is a user like any other")
		atHost := launch.Kubectl{Kubeconfig: files.Connection(), Home: files.Dir}
		Expect(kubectl(atHost, "auth", "whoami", "-s", host.config.Host, "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")).
			To(Equal(user + ` ["` + domain + `:nodes","system:authenticated"]`))
		for _, command := range []string{"get nodes", "get pods -A", "get secrets -A", "create configmap a", "delete csr " + request} {
			Expect(fails(atHost, "", append([]string{"-s", host.config.Host}, strings.Fields(command)...)...)).To(ContainSubstring("forbidden"), command)
		}
	})
})

// What docs/fleet-machines.md says for hosts that have no bootstrap tokens.
var _ = Describe("a machine that joins by a service account of the host", func() {
	It("is a node of the fleet by the account's token, once the account has the role", func(ctx SpecContext) {
		const account, node = "machine-1", "rack-10"
		grantMachines(ctx)
		kubectl(onHost, "create", "serviceaccount", account, "-n", "svc-system")
		DeferCleanup(func() { kubectl(onHost, "delete", "serviceaccount", account, "-n", "svc-system") })
		machine := clientOf(fleetKubeconfig(ctx, accountToken(account)))
		register := func() error {
			_, err := machine.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
			return err
		}
		Expect(apierrors.IsForbidden(register())).To(BeTrue(), "an account without the role")

		kubectl(onHost, "create", "clusterrolebinding", account, "--clusterrole=svc-machine", "--serviceaccount=svc-system:"+account)
		DeferCleanup(func() { kubectl(onHost, "delete", "clusterrolebinding", account) })
		Eventually(register).Should(Succeed())
		DeferCleanup(func() { kubectl(onFleet, "delete", "node", node) })
		Expect(kubectl(onHost, "get", "nodes.core.svc.dev", node, "-o", "name")).To(Equal("node.core.svc.dev/" + node + "\n"))
		Expect(fails(onHost, "", "get", "nodes", node)).To(ContainSubstring(`nodes "`+node+`" not found`), "the host's own")

		By("what its agent does from then on")
		_, err := machine.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { kubectl(onFleet, "delete", "lease", node, "-n", corev1.NamespaceNodeLease) })
		_, err = machine.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"status":{"nodeInfo":{"machineID":"m"}}}`), metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
		_, err = machine.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		Expect(err).NotTo(HaveOccurred())
	})
})

// accountToken returns a token of a service account: by a Secret, as the documentation says, or
// of a host whose controller of such Secrets does not run, by a request.
func accountToken(account string) string {
	GinkgoHelper()
	if os.Getenv("HOST") == "kube-apiserver" {
		return strings.TrimSpace(kubectl(onHost, "create", "token", account, "-n", "svc-system"))
	}
	apply(onHost, `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"`+account+`","namespace":"svc-system",
		"annotations":{"kubernetes.io/service-account.name":"`+account+`"}}}`, "apply")
	var token []byte
	Eventually(func() []byte {
		var err error
		token, err = base64.StdEncoding.DecodeString(kubectl(onHost, "get", "secret", account, "-n", "svc-system", "-o", "jsonpath={.data.token}"))
		Expect(err).NotTo(HaveOccurred())
		return token
	}).ShouldNot(BeEmpty())
	return string(token)
}

// fleetKubeconfig returns what 'svc kubeconfig' makes of a kubeconfig of the host with a token.
func fleetKubeconfig(ctx context.Context, token string) string {
	GinkgoHelper()
	ofHost := clientcmdapi.NewConfig()
	ofHost.Clusters["host"] = &clientcmdapi.Cluster{Server: host.config.Host, CertificateAuthority: host.authority.File}
	ofHost.AuthInfos["machine"] = &clientcmdapi.AuthInfo{Token: token}
	ofHost.Contexts["machine"] = &clientcmdapi.Context{Cluster: "host", AuthInfo: "machine"}
	ofHost.CurrentContext = "machine"
	file := filepath.Join(GinkgoT().TempDir(), "machine.kubeconfig")
	Expect(clientcmd.WriteToFile(*ofHost, file)).To(Succeed())
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	ofFleet, err := exec.CommandContext(ctx, binary, "kubeconfig", "--group-domain="+domain, "--svcconfig="+file).Output()
	Expect(err).NotTo(HaveOccurred())
	return writeFile("machine.kubeconfig", string(ofFleet))
}

// grantMachines creates the roles and bindings of machines in the manifests, until the end of
// the spec.
func grantMachines(ctx context.Context) {
	GinkgoHelper()
	roles := manifestsOf(render(ctx), func(obj object) bool { return strings.HasPrefix(nameOf(obj), "svc-machine") })
	apply(onHost, roles, "create")
	DeferCleanup(func() { apply(onHost, roles, "delete") })
}

// startBootstrap starts what requests a certificate, and returns how it ends.
func startBootstrap(b certificates.Bootstrap) <-chan error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*launch.Patience)
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- b.Run(ctx)
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(BeClosed())
	})
	return ended
}

func clientOf(kubeconfig string) kubernetes.Interface {
	GinkgoHelper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	return kubernetes.NewForConfigOrDie(config)
}
