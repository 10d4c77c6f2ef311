// Package aggregated drives a fleet behind a host as its users do: the host is `svc up` or a
// real kube-apiserver with kube-controller-manager, the fleet is `svc apiserver --group-domain` with a controller manager of its own.
package aggregated

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/registration"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/test/launch"
)

// domain is the group domain of the fleet, and fleetPath its own address at the host.
const (
	domain    = "svc.dev"
	fleetPath = "/apis/fleet.svc.dev/v1/fleets/default/proxy"
)

// The parts of the suite, and clients for what kubectl is not the subject of.
var (
	dir     string
	host    parent
	backend *launch.Process
	// backendURL is where the fleet's server listens itself.
	backendURL string
	hostClient kubernetes.Interface
	// fleetClient uses the fleet's own address.
	fleetClient kubernetes.Interface
	// onHost runs kubectl at the host, onFleet at the fleet's own address.
	onHost, onFleet launch.Kubectl
)

// parent is the host.
type parent struct {
	config     *rest.Config // of its administrator
	kubeconfig string
	etcd       string
	authority  *launch.Authority
	log        func() string // of its controllers
}

func TestAggregated(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = launch.SuiteTimeout(t, suite.Timeout)
	RunSpecs(t, "aggregated", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	dir, err = launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	startHost(ctx)
	startBackend(ctx)
	register(ctx)
	startManager(ctx, onFleet.Kubeconfig)
})

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() && backend != nil {
		AddReportEntry("log of the fleet's server", tail(backend.Output()))
		AddReportEntry("log of the host's controllers", tail(host.log()))
	}
})

// tail returns the end of a log.
func tail(log string) string { return log[max(0, len(log)-5_000):] }

// startHost starts the host: `svc up` or, with HOST=kube-apiserver, the real thing as
// hack/peers.sh builds it.
func startHost(ctx context.Context) {
	GinkgoHelper()
	hostDir := filepath.Join(dir, "host")
	Expect(os.MkdirAll(hostDir, 0o700)).To(Succeed())
	if os.Getenv("HOST") == "kube-apiserver" {
		startKube(ctx, hostDir)
	} else {
		up, err := launch.Up(ctx, hostDir)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			code, err := up.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", tail(up.Output()))
		})
		host = parent{config: up.Config, kubeconfig: up.Kubeconfig, etcd: "unix://" + filepath.Join(hostDir, "etcd", "etcd.sock"), log: up.Output}
		host.authority, err = up.Authority()
		Expect(err).NotTo(HaveOccurred())
	}
	hostClient = kubernetes.NewForConfigOrDie(host.config)
	onHost = launch.Kubectl{Kubeconfig: host.kubeconfig, Home: filepath.Join(dir, "home-host")}
}

// startKube starts kube-apiserver, with what aggregation and bootstrap tokens need, and the
// controllers of kube-controller-manager that concern a fleet.
func startKube(ctx context.Context, hostDir string) {
	GinkgoHelper()
	flags, err := launch.FrontProxy(filepath.Join(dir, "front"))
	Expect(err).NotTo(HaveOccurred())
	program := "kube-apiserver"
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" { // as envtest has it: the user's own
		program = filepath.Join(assets, program)
	}
	kube, err := launch.UpKubeOf(ctx, hostDir, program, append(flags, launch.NoServiceAccounts, "--enable-bootstrap-token-auth")...)
	DeferCleanup(kube.Stop)
	Expect(err).NotTo(HaveOccurred())
	manager, err := kube.StartController("kube-controller-manager", append(kube.SigningFlags(), "--controllers=namespace-controller,garbage-collector-controller,"+
		"bootstrap-signer-controller,certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller")...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(manager.Kill)
	host = parent{config: kube.Config, kubeconfig: kube.Kubeconfig, etcd: kube.Etcd, authority: kube.Cluster().Authority, log: manager.Output}
}

// startBackend starts the fleet's server as a user of the host that has only the roles
// which the documentation names.
func startBackend(ctx context.Context) {
	GinkgoHelper()
	kubectl(onHost, "create", "namespace", "svc-system")
	kubectl(onHost, "create", "clusterrolebinding", "svc-delegator", "--clusterrole=system:auth-delegator", "--user=svc-apiserver")
	kubectl(onHost, "create", "rolebinding", "svc-reader", "-n", "kube-system", "--role=extension-apiserver-authentication-reader", "--user=svc-apiserver")
	kubectl(onHost, "create", "clusterrole", "svc-namespaces", "--verb=get,list,watch", "--resource=namespaces")
	kubectl(onHost, "create", "clusterrolebinding", "svc-namespaces", "--clusterrole=svc-namespaces", "--user=svc-apiserver")

	connection := filepath.Join(dir, "svc-apiserver")
	Expect(host.authority.Connection(connection, host.config.Host, "svc-apiserver")).To(Succeed())
	Expect(host.authority.Server(dir, "serving", "svc", "localhost", "127.0.0.1", "svc.svc-system.svc")).To(Succeed())
	Expect(host.authority.Client(dir, "nodes-client", "svc-apiserver")).To(Succeed())
	port, err := launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	args := manifestArgs(ctx, "svc-apiserver", outsideOfPods(port))
	backendURL = "https://127.0.0.1:" + port
	backend = startServer(ctx, backendURL, connection, append(args, "--etcd-prefix=/fleet",
		"--audit-policy-file="+writeFile("audit.yaml", auditPolicy), "--audit-log-path="+filepath.Join(dir, "audit.log"), "--audit-log-mode=blocking"))
}

// outsideOfPods returns the flags of the manifests' API servers that have other values
// outside of a pod.
func outsideOfPods(port string) map[string]string {
	return map[string]string{
		"etcd-servers": host.etcd, "etcd-secret": "", "serving-secret": "", "serving-service": "",
		"bind-address": "127.0.0.1", "secure-port": port, "cert-dir": dir, "shutdown-delay-duration": "",
	}
}

// startServer starts a fleet's server with a kubeconfig of the host and the certificates that
// startBackend has made, and waits until it is ready.
func startServer(ctx context.Context, url, connection string, args []string) *launch.Process {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	server, err := launch.Start(nil, binary, append(args, "--host-kubeconfig="+connection,
		"--tls-cert-file="+filepath.Join(dir, "serving.crt"), "--tls-private-key-file="+filepath.Join(dir, "serving.key"),
		"--authorization-webhook-cache-authorized-ttl=1s", "--authorization-webhook-cache-unauthorized-ttl=1s")...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := server.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", tail(server.Output()))
	})
	direct := &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAFile: host.authority.File}}
	Eventually(func() (int, error) {
		select {
		case <-server.Exited():
			return 0, StopTrying("the fleet's server has ended: " + tail(server.Output()))
		default:
		}
		status, _, err := launch.Get(ctx, direct, "/readyz")
		return status, err
	}).Should(Equal(200))
	return server
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: RequestResponse
  verbs: [create]
  resources: [{group: "", resources: [configmaps]}]
- level: None
`

// register registers the fleet's groups at the host.
func register(ctx context.Context) {
	GinkgoHelper()
	_, err := hostClient.CoreV1().Services("svc-system").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "svc"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	groups, err := registration.New(release.Default, domain)
	Expect(err).NotTo(HaveOccurred())
	registerVersions(groups.Versions...)

	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	config, err := exec.CommandContext(ctx, binary, "kubeconfig", "--group-domain="+domain, "--svcconfig="+host.kubeconfig).Output()
	Expect(err).NotTo(HaveOccurred())
	onFleet = launch.Kubectl{Kubeconfig: writeFile("fleet", string(config)), Home: filepath.Join(dir, "home-fleet")}
	fleetConfig := rest.CopyConfig(host.config)
	fleetConfig.Host += fleetPath
	fleetClient = kubernetes.NewForConfigOrDie(fleetConfig)
}

// registerVersions registers group versions, in the names of the domain, and waits until
// the host has reached them.
func registerVersions(versions ...schema.GroupVersion) {
	GinkgoHelper()
	backend, err := url.Parse(backendURL)
	Expect(err).NotTo(HaveOccurred())
	for _, name := range createAPIServices(backend.Port(), versions...) {
		kubectl(onHost, "wait", "apiservice", name, "--for=condition=Available", "--timeout=3m")
	}
}

// createAPIServices registers group versions that a server at a port of this machine serves,
// and returns the names of the APIServices.
func createAPIServices(port string, versions ...schema.GroupVersion) (names []string) {
	GinkgoHelper()
	number, err := strconv.Atoi(port)
	Expect(err).NotTo(HaveOccurred())
	authority, err := os.ReadFile(host.authority.File)
	Expect(err).NotTo(HaveOccurred())
	for _, service := range (&registration.Groups{Versions: versions}).APIServices(types.NamespacedName{Namespace: "svc-system", Name: "svc"}) {
		service.Spec.CABundle, service.Spec.Service.Port = authority, ptr.To(int32(number))
		manifest, err := json.Marshal(service)
		Expect(err).NotTo(HaveOccurred())
		apply(onHost, string(manifest), "create")
		names = append(names, service.Name)
	}
	return names
}

// startManager starts a fleet's controllers, with a connection to its own address.
func startManager(ctx context.Context, kubeconfig string) {
	GinkgoHelper()
	args := manifestArgs(ctx, "svc-controller-manager", outsideOfManagersPods(kubeconfig))
	runManager(append(args, "--node-monitor-grace-period=5s"))
}

// outsideOfManagersPods returns the flags of the manifests' controllers that have other
// values outside of a pod.
func outsideOfManagersPods(kubeconfig string) map[string]string {
	return map[string]string{"svcconfig": kubeconfig, "bind-address": "127.0.0.1", "secure-port": "0"}
}

// runManager runs svc controller-manager until the end of the spec, or of the suite.
func runManager(args []string) {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	ofFleet, err := launch.Start(nil, binary, args...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := ofFleet.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", tail(ofFleet.Output()))
	})
}

// object is what kubectl prints with -o json.
type object = map[string]any

// kubectl runs a command that must succeed, and returns its output.
func kubectl(k launch.Kubectl, args ...string) string {
	GinkgoHelper()
	stdout, stderr, err := k.Run(context.Background(), "", args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// out returns the output of a command that is to succeed soon.
func out(k launch.Kubectl, stdin string, args ...string) func(Gomega) string {
	return func(g Gomega) string {
		stdout, stderr, err := k.Run(context.Background(), stdin, args...)
		g.Expect(err).NotTo(HaveOccurred(), "%s%s", stdout, stderr)
		return stdout
	}
}

// apply runs a command that must succeed with a manifest.
func apply(k launch.Kubectl, manifest string, args ...string) string {
	GinkgoHelper()
	stdout, stderr, err := k.Run(context.Background(), manifest, append(args, "-f", "-")...)
	Expect(err).NotTo(HaveOccurred(), stdout+stderr)
	return stdout + stderr
}

// fails runs a command that must fail, and returns its message.
func fails(k launch.Kubectl, manifest string, args ...string) string {
	GinkgoHelper()
	stdout, stderr, err := k.Run(context.Background(), manifest, args...)
	Expect(err).To(HaveOccurred(), stdout+stderr)
	return stderr
}

// parse reads JSON.
func parse(text string) object {
	GinkgoHelper()
	var obj object
	Expect(json.Unmarshal([]byte(text), &obj)).To(Succeed(), text)
	return obj
}

func writeFile(name, content string) string {
	GinkgoHelper()
	file := filepath.Join(dir, name)
	Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	return file
}

// newNamespace creates a namespace at the host, which is deleted after the spec.
func newNamespace() string {
	GinkgoHelper()
	name := fmt.Sprintf("team-%d", GinkgoRandomSeed()+int64(CurrentSpecReport().LeafNodeLocation.LineNumber)*1000)
	kubectl(onHost, "create", "namespace", name)
	DeferCleanup(func() { kubectl(onHost, "delete", "namespace", name, "--wait=false", "--ignore-not-found") })
	return name
}
