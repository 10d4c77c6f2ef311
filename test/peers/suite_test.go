// Package peers compares svc with the real kubelet and kube-apiserver, with real
// containers: each agent works with the other's API server, and both agents run the
// same pods.
//
// It needs what hack/peers.sh builds, and is skipped without that.
package peers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// The images that pods may use, which no registry has.
const (
	busybox     = "localhost/svc/busybox:1"
	serverImage = "localhost/svc/server:1" // test/node/server
)

// dir is removed at the end.
var (
	dir    string
	images []launch.Image
)

func TestPeers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "peers")
}

var _ = BeforeSuite(func() {
	if why := launch.WhyNoNode(); why != "" {
		Skip(why)
	}
	for _, program := range []string{"kubelet", "kube-apiserver", "etcd"} {
		if _, err := launch.Peer(program); err != nil {
			Skip(err.Error())
		}
	}
	box, err := launch.Busybox(busybox)
	if err != nil {
		Skip(err.Error())
	}
	server, err := launch.Program(serverImage, "svc.dev/svc/test/node/server")
	Expect(err).NotTo(HaveOccurred())
	images = []launch.Image{box, server}
	dir, err = launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
})

// newMachine starts a containerd with the images.
func newMachine(ctx context.Context) *launch.Machine {
	GinkgoHelper()
	m, err := launch.NewMachine(ctx)
	DeferCleanup(func() { Expect(m.Remove()).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Import(ctx, images...)).To(Succeed())
	return m
}

// gates are the features of kubelet 1.36 that release 1.28 has off by default.
const gates = "--feature-gates=SidecarContainers=true,PodHostIPs=true,PodReadyToStartContainersCondition=true,InPlacePodVerticalScaling=true"

// startAgent starts an agent on a machine, and waits until its node is ready.
func startAgent(ctx context.Context, kind launch.AgentKind, cluster launch.Cluster, client ctrlclient.Client) (*launch.Agent, *launch.Machine) {
	GinkgoHelper()
	m := newMachine(ctx)
	program, err := kind.Program()
	Expect(err).NotTo(HaveOccurred())
	a, err := m.NewAgent(kind, program, string(kind))
	Expect(err).NotTo(HaveOccurred())
	if kind == launch.Svclet { // kubelet 1.36 has these features without a gate
		a.Args = append(a.Args, gates)
	}
	Expect(a.Configure(cluster)).To(Succeed())
	Expect(a.Start()).To(Succeed())
	DeferCleanup(func() {
		a.Kill()
		if CurrentSpecReport().Failed() {
			AddReportEntry(string(kind)+" logged", a.Output())
			AddReportEntry(string(kind)+"'s containerd logged", lastLines(readFile(m.Log)))
		}
	})
	Eventually(func(g Gomega) {
		select {
		case <-a.Exited():
			StopTrying("it has ended").Attach("log", a.Output()).Now()
		default:
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.Node}}
		g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(node), node)).To(Succeed())
		g.Expect(node.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
	return a, m
}

// newClient returns a client with the credentials of config.
func newClient(config *rest.Config) ctrlclient.WithWatch {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return client
}

// upSVC starts svc as a control plane.
func upSVC(ctx context.Context) *launch.Server {
	GinkgoHelper()
	data, err := os.MkdirTemp(dir, "up")
	Expect(err).NotTo(HaveOccurred())
	server, err := launch.Up(ctx, data, "--svclet-preferred-address-types=InternalIP", gates)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		_, err := server.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
	})
	return server
}

func readFile(name string) string {
	content, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

func lastLines(text string) string {
	const most = 60
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// onNode replaces NODE in manifests by the name of a node.
func onNode(manifests, node string) string { return strings.ReplaceAll(manifests, "NODE", node) }

// configTimeout is how long kubelet may take until a container sees that a
// ConfigMap has changed: it syncs each pod about once a minute.
const configTimeout = 5 * time.Minute
