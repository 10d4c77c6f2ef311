// Package deployed installs a fleet into a host cluster as its users do, from config/, and
// runs it there: the host is Kubernetes' own control plane with one node, on which the
// fleet's pods run, and a machine of this machine's joins the fleet.
//
// It needs root on Linux, what hack/peers.sh and `make image` build, and HOST=pods; it is
// skipped without that.
package deployed

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"svc.dev/svc/internal/fleetaddress"
	"svc.dev/svc/svclet/image/load"
	svcletjoin "svc.dev/svc/svclet/join"
	"svc.dev/svc/test/launch"
)

// fleetPath is the fleet's own address at the host.
const fleetPath = "/apis/fleet.svc.dev/v1/fleets/default/proxy"

// The images that pods use, which no registry has.
const (
	etcdImage = "gcr.io/etcd-development/etcd:v3.7.3" // as config/aggregated names it
	busybox   = "localhost/svc/busybox:1"
)

// patience is how long what several pods have to do for may take.
const patience = 3 * time.Minute

var (
	root, dir string
	// address is one of this machine that pods reach.
	address string
	kube    *launch.Kube
	// hostMachine runs the pods of the host.
	hostMachine *launch.Machine
	hostClient  kubernetes.Interface
	onHost      launch.Kubectl
	// fleetClient and onFleet use the fleet's own address.
	fleetClient kubernetes.Interface
	onFleet     launch.Kubectl
	// agents are those that were started, for their logs.
	agents []*launch.Agent
)

func TestDeployed(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = launch.SuiteTimeout(t, suite.Timeout)
	RunSpecs(t, "deployed", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	if os.Getenv("HOST") != "pods" {
		Skip("HOST=pods is not set: `make test-aggregated HOST=pods` runs this suite")
	}
	if why := launch.WhyNoNode(); why != "" {
		Skip(why)
	}
	var err error
	root, err = filepath.Abs("../../..")
	Expect(err).NotTo(HaveOccurred())
	dir, err = launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	address, err = addressOfMachine()
	Expect(err).NotTo(HaveOccurred())

	startHost(ctx)
	hostMachine = newMachine(ctx)
	importSVC(ctx)
	// Kubernetes grants its nodes no EndpointSlices, which --service-proxy reads.
	kubectl(onHost, "create", "clusterrolebinding", "node-proxier", "--clusterrole=system:node-proxier", "--group=system:nodes")
	agent := newAgent(hostMachine, "host-node", kube.Cluster(), "--service-proxy")
	start(agent)
	awaitReady(ctx, agent, hostClient)
	DeferCleanup(removeRoutes)
})

var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() {
		return
	}
	for _, agent := range agents {
		AddReportEntry("log of the agent of "+agent.Node, tail(agent.Output()))
	}
	reportPods(context.Background())
})

// addressOfMachine returns an IPv4 address of this machine other than the loopback
// address, which kube-apiserver refuses to advertise.
func addressOfMachine() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String(), nil
		}
	}
	return "", fmt.Errorf("this machine has no IPv4 address but loopback: %v", addrs)
}

// startHost starts Kubernetes' control plane.
func startHost(ctx context.Context) {
	GinkgoHelper()
	hostDir := filepath.Join(dir, "host")
	Expect(os.MkdirAll(hostDir, 0o700)).To(Succeed())
	flags, err := launch.FrontProxy(filepath.Join(dir, "front"))
	Expect(err).NotTo(HaveOccurred())
	kube, err = launch.UpKube(ctx, hostDir, append(flags, "--bind-address=0.0.0.0", "--advertise-address="+address, "--enable-bootstrap-token-auth")...)
	DeferCleanup(func() { kube.Stop() })
	Expect(err).NotTo(HaveOccurred())
	for name, flags := range map[string][]string{
		"kube-controller-manager": append(kube.SigningFlags(),
			"--service-account-private-key-file="+filepath.Join(hostDir, "service-account.key"), "--root-ca-file="+kube.Cluster().Authority.File,
			"--node-monitor-period=1s",
		),
		"kube-scheduler": nil,
	} {
		controller, err := kube.StartController(name, flags...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(controller.Kill)
	}
	hostClient = kubernetes.NewForConfigOrDie(kube.Config)
	onHost = launch.Kubectl{Kubeconfig: kube.Kubeconfig, Home: filepath.Join(dir, "home-host")}
	Eventually(func() error {
		_, err := hostClient.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	}).Should(Succeed())
	dns, err := launch.NewDNS(ctx, hostClient, address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(dns.Stop)
}

// newMachine starts a containerd, with the image of the workloads.
func newMachine(ctx context.Context) *launch.Machine {
	GinkgoHelper()
	m, err := launch.NewMachine(ctx)
	DeferCleanup(func() { Expect(m.Remove()).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())
	box, err := launch.Busybox(busybox)
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Import(ctx, box)).To(Succeed())
	return m
}

// importSVC gives the host's machine the images of svc, which `make image` builds, and of
// etcd.
func importSVC(ctx context.Context) {
	GinkgoHelper()
	files := map[string]launch.ImageFile{}
	for _, name := range []string{"etcd", "etcdctl", "etcdutl"} { // as the image has them that is published
		program, err := launch.Peer(name)
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(program)
		Expect(err).NotTo(HaveOccurred())
		files["/usr/local/bin/"+name] = launch.ImageFile{Content: content}
	}
	Expect(hostMachine.Import(ctx, launch.Image{Name: etcdImage, Files: files})).To(Succeed())
	importArchive(ctx, filepath.Join(root, "dist", "svc.tar"))
}

// importArchive gives the host's machine an image that `make image` has written.
func importArchive(ctx context.Context, file string) {
	GinkgoHelper()
	archive, err := os.Open(file)
	Expect(err).NotTo(HaveOccurred(), "run `make image`")
	defer archive.Close()
	_, err = load.Import(ctx, load.Options{Endpoint: hostMachine.Endpoint()}, archive)
	Expect(err).NotTo(HaveOccurred())
}

// newAgent returns an agent that is configured as a node of a cluster, and not started yet.
func newAgent(m *launch.Machine, node string, cluster launch.Cluster, flags ...string) *launch.Agent {
	GinkgoHelper()
	program, err := launch.Svclet.Program()
	Expect(err).NotTo(HaveOccurred())
	agent, err := m.NewAgent(launch.Svclet, program, node)
	Expect(err).NotTo(HaveOccurred())
	agent.Args = append(agent.Args, flags...)
	Expect(agent.Configure(cluster)).To(Succeed())
	return agent
}

func start(agent *launch.Agent) {
	GinkgoHelper()
	Expect(agent.Start()).To(Succeed())
	agents = append(agents, agent)
	DeferCleanup(agent.Kill)
}

// awaitReady waits until the node of an agent is ready.
func awaitReady(ctx context.Context, agent *launch.Agent, client kubernetes.Interface) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		select {
		case <-agent.Exited():
			StopTrying("the agent has ended").Attach("log", tail(agent.Output())).Now()
		default:
		}
		object, err := client.CoreV1().Nodes().Get(ctx, agent.Node, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
}

// join starts svclet on a machine as `svclet join --group-domain` does, by a token of the
// host, and approves the request for its certificate.
func join(ctx context.Context, m *launch.Machine, node string) *launch.Agent {
	GinkgoHelper()
	authority := kube.Cluster().Authority
	certificate, err := os.ReadFile(authority.File)
	Expect(err).NotTo(HaveOccurred())
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	token, err := exec.CommandContext(ctx, binary, "token", "create", "--groups="+fleetaddress.BootstrapGroup, "--svcconfig="+kube.Kubeconfig).Output()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		kubectl(onHost, "delete", "secret", "-n", "kube-system", "--field-selector=type="+string(bootstrapapi.SecretTypeBootstrapToken))
		kubectl(onHost, "delete", "-n", "kube-public", "configmap/cluster-info",
			"role/kubeadm:bootstrap-signer-clusterinfo", "rolebinding/kubeadm:bootstrap-signer-clusterinfo")
		kubectl(onHost, "delete", "csr", "--all")
	})
	files := svcletjoin.Files{Dir: filepath.Join(m.Dir, "joined")}
	Expect(files.Write(kube.Config.Host+fleetPath, strings.TrimSpace(string(token)), certificate)).To(Succeed())

	agent := newAgent(m, node, launch.Cluster{Server: kube.Config.Host + fleetPath, Authority: authority}, "--bootstrap-svcconfig="+files.Bootstrap(), "--network-policy")
	Expect(os.Remove(filepath.Join(m.Dir, "connection"))).To(Succeed())
	start(agent)
	var request string
	Eventually(func() string {
		request = kubectl(onHost, "get", "csr", "-o", "jsonpath={.items[*].metadata.name}")
		return request
	}).ShouldNot(BeEmpty())
	kubectl(onHost, "certificate", "approve", request)
	awaitReady(ctx, agent, fleetClient)
	return agent
}

// removeRoutes removes what agents with --service-proxy and --network-policy leave for
// connections to go on: with a container runtime of the user's, these tables.
func removeRoutes(ctx SpecContext) {
	for _, family := range []string{"ip", "ip6"} {
		for _, table := range []string{"svclet", "svclet-policies"} {
			if exec.CommandContext(ctx, "nft", "list", "table", family, table).Run() == nil {
				Expect(exec.CommandContext(ctx, "nft", "delete", "table", family, table).Run()).To(Succeed())
			}
		}
	}
}

// connectFleet makes the clients of the fleet's own address.
func connectFleet(ctx context.Context) {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	content, err := exec.CommandContext(ctx, binary, "kubeconfig", "--group-domain=svc.dev", "--svcconfig="+kube.Kubeconfig).Output()
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(dir, "fleet")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	onFleet = launch.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home-fleet")}
	config := rest.CopyConfig(kube.Config)
	config.Host += fleetPath
	fleetClient = kubernetes.NewForConfigOrDie(config)
}

// script runs a script of hack/ that uses the host's kubeconfig.
func script(ctx context.Context, args ...string) {
	GinkgoHelper()
	scriptWith(ctx, nil, args...)
}

// scriptWith is script with variables of the environment.
func scriptWith(ctx context.Context, environment []string, args ...string) {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, "bash", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BIN="+filepath.Dir(binary), "KUBECONFIG="+kube.Kubeconfig, "IMAGE=", "SHELL_IMAGE="+busybox)
	cmd.Env = append(cmd.Env, environment...)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%v\n%s", args, out)
}

// kubectl runs a command that must succeed, and returns its output.
func kubectl(k launch.Kubectl, args ...string) string {
	GinkgoHelper()
	return apply(k, "", args...)
}

// apply runs a command that must succeed with a manifest.
func apply(k launch.Kubectl, manifest string, args ...string) string {
	GinkgoHelper()
	stdout, stderr, err := k.Run(context.Background(), manifest, args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// tail returns the end of a log.
func tail(log string) string { return log[max(0, len(log)-8_000):] }
