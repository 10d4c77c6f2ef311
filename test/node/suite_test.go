// Package node tests the node with real containers: svc up as root, with its own
// containerd.
//
// A spec works in a namespace of its own (newNamespace), drives the cluster with
// kubectl (run, apply) or with client, and waits by Eventually.
package node

import (
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"svc.dev/svc/test/launch"
)

// The images that specs may use. They are only in the node's containerd, so pods need imagePullPolicy Never or IfNotPresent.
const (
	busybox     = "localhost/svc/busybox:1"
	serverImage = "localhost/svc/server:1" // test/node/server
)

// releaseVariable names the release that the suite's node serves, such as 1.37; by default
// that of svc. The specs of the sidecars of CSI drivers hold at every release since 1.28.
const releaseVariable = "SVC_RELEASE"

// releaseFlag returns the flag by which the suite's node serves its release: by default with
// gates of what specs need and later releases have.
func releaseFlag() string {
	if r := os.Getenv(releaseVariable); r != "" {
		return "--release=" + r
	}
	return "--feature-gates=SidecarContainers=true,InPlacePodVerticalScaling=true,UserNamespacesStatelessPodsSupport=true,ContainerCheckpoint=true,DevicePluginCDIDevices=true"
}

// servedRelease returns the minor version of the release that the suite's node serves.
func servedRelease(ctx context.Context) int {
	GinkgoHelper()
	var version struct{ Minor string }
	Expect(json.Unmarshal([]byte(run(ctx, "get", "--raw=/version")), &version)).To(Succeed())
	minor, err := strconv.Atoi(version.Minor)
	Expect(err).NotTo(HaveOccurred())
	return minor
}

// The suite's node, and administrator clients of its cluster.
var (
	svc     string // the program
	dir     string // removed at the end
	node    *launch.Node
	images  []launch.Image
	client  ctrlclient.WithWatch
	kubectl launch.Kubectl

	// resolvConf names the machine's resolvers: at first a copy of /etc/resolv.conf.
	resolvConf string

	// clusterCIDR is the range from which the cluster allocates pod CIDRs.
	clusterCIDR string
)

func TestNode(t *testing.T) {
	RegisterFailHandler(Fail)
	ctrllog.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = launch.SuiteTimeout(t, suite.Timeout)
	RunSpecs(t, "node", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	if why := launch.WhyNoNode(); why != "" {
		Skip(why)
	}
	shell, err := launch.Busybox(busybox)
	if err != nil {
		Skip(err.Error())
	}
	svc, err = launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	dir, err = launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	Expect(os.Chmod(dir, 0o711)).To(Succeed()) // the users of pods' user namespaces have to pass it
	resolvConf = filepath.Join(dir, "resolv.conf")
	content, err := os.ReadFile("/etc/resolv.conf")
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(resolvConf, content, 0o644)).To(Succeed())
	clusterCIDR, err = launch.FreeCIDR()
	Expect(err).NotTo(HaveOccurred())
	node, err = launch.UpNode(ctx, filepath.Join(dir, "data"), "--allocate-node-cidrs", "--cluster-cidr="+clusterCIDR, "--node-cidr-mask-size=26",
		"--horizontal-pod-autoscaler-sync-period=2s", releaseFlag(), "--resolv-conf="+resolvConf)
	DeferCleanup(func() {
		Expect(node.Remove()).To(Succeed())
	})
	Expect(err).NotTo(HaveOccurred())
	connect()

	web, err := launch.Program(serverImage, "svc.dev/svc/test/node/server")
	Expect(err).NotTo(HaveOccurred())
	images = []launch.Image{shell, web}
	archives := []string{filepath.Join(dir, "busybox.tar"), filepath.Join(dir, "server.tar")}
	for i, image := range images {
		Expect(image.WriteFile(archives[i])).To(Succeed())
	}
	out := importImages(ctx, archives...)
	Expect(out).To(ContainSubstring(busybox + "  sha256:"))
	Expect(out).To(ContainSubstring(serverImage + "  sha256:"))
})

// connect creates the clients after each start of svc up.
func connect() {
	GinkgoHelper()
	var err error
	client, err = clientOf(node.Config)
	Expect(err).NotTo(HaveOccurred())
	kubectl = launch.Kubectl{Kubeconfig: node.Kubeconfig, Home: dir}
}

func clientOf(config *rest.Config) (ctrlclient.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return ctrlclient.NewWithWatch(config, ctrlclient.Options{Scheme: scheme})
}

// importImages runs svc image import, and returns what it prints.
func importImages(ctx context.Context, files ...string) string {
	GinkgoHelper()
	args := append([]string{"image", "import", "--data-dir=" + node.DataDir}, files...)
	out, err := exec.CommandContext(ctx, svc, args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "svc image import: %s", out)
	return string(out)
}

// newNamespace creates a namespace that is deleted after the spec, and waits for
// the service account without which pods are refused.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(client.Create(ctx, ns)).To(Succeed())
	Eventually(func() error {
		return client.Get(ctx, ctrlclient.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, ns))).To(Succeed())
	})
	return ns.Name
}

// run runs kubectl and returns what it prints.
func run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, errOut, err := kubectl.Run(ctx, "", args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, errOut)
	return out
}

// apply applies manifests in a namespace.
func apply(ctx context.Context, namespace, manifests string) {
	GinkgoHelper()
	_, errOut, err := kubectl.Run(ctx, manifests, "apply", "--namespace="+namespace, "--filename=-")
	Expect(err).NotTo(HaveOccurred(), "kubectl apply: %s", errOut)
}

// With a failure, the report has the logs of svc and containerd.
var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() || node == nil || node.Server == nil {
		return
	}
	AddReportEntry("svc up printed", lastLines(node.Output()))
	if log, err := os.ReadFile(filepath.Join(node.ContainerdDir(), "containerd.log")); err == nil {
		AddReportEntry("containerd logged", lastLines(string(log)))
	}
})

func lastLines(text string) string {
	const most = 40
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
