// Package controllers tests the controllers with real parts: an API server on
// its own etcd, a controller manager in a process of its own that specs may
// kill, simulated nodes, and kubectl where a person would use it.
package controllers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

// The suite's server, a client that may do everything, and the manager that
// runs all controllers. Each spec works in namespaces of its own.
var (
	server  *launch.Server
	client  ctrlclient.WithWatch
	manager *launch.Process
	kubectl launch.Kubectl
	nodes   *simulate.Nodes
)

// managerFlags shorten what specs would have to wait for. A lease lasts, as a
// slow machine must not make a manager lose it; most specs need not wait for its
// end: see killManager.
var managerFlags = []string{
	"--leader-elect-lease-duration=20s", "--leader-elect-renew-deadline=15s", "--leader-elect-retry-period=200ms",
	"--namespace-deletion-grace=1s", "--controllers=*,hostloadbalancer", "--feature-gates=DRAResourcePoolStatus=true",
}

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(launch.Patience)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultConsistentlyDuration(time.Second)
	RunSpecs(t, "controllers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	// The latest release has all fields that the controllers act on.
	server, err = launch.Up(ctx, filepath.Join(dir, "data"), append(auditFlags(dir), "--controllers=", "--release=latest",
		"--runtime-config=resource.k8s.io/v1alpha3/resourcepoolstatusrequests=true")...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := server.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", server.Output())
	})
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	client, err = ctrlclient.NewWithWatch(server.Config, ctrlclient.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	kubectl = launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: dir}
	nodes, err = simulate.Start(server.Config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nodes.Stop)
	startManager(ctx)
	DeferCleanup(func() {
		code, err := manager.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", manager.Output())
	})
})

// startManager starts a manager; the one before must have ended.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = server.Manager(ctx, managerFlags...)
	Expect(err).NotTo(HaveOccurred())
	managerLogged = 0
}

// killManager kills the manager and ends its lease, for which the next one would
// wait: no test depends on that, because no client acts on it.
func killManager(ctx context.Context) {
	GinkgoHelper()
	manager.Kill()
	endLease(ctx, client)
}

func endLease(ctx context.Context, client ctrlclient.Client) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-controller-manager"}}
	Expect(client.Delete(ctx, lease)).To(Succeed())
}

// reportedLines is how many lines of the manager's log a failed spec shows.
const reportedLines = 200

// managerLogged is how much of the manager's log earlier reports have shown.
var managerLogged int

var _ = ReportAfterEach(func(report SpecReport) {
	if manager == nil {
		return
	}
	log := manager.Output()
	if report.Failed() && len(log) > managerLogged {
		lines := strings.SplitAfter(log[managerLogged:], "\n")
		AddReportEntry("the end of the manager's log during this spec", strings.Join(lines[max(0, len(lines)-reportedLines):], ""))
	}
	managerLogged = len(log)
})

// newNamespace creates a namespace that is deleted after the spec, and returns when it has
// the service account that its pods get.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(client.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, ns))).To(Succeed())
	})
	awaitAccount(ctx, client, ns.Name)
	return ns.Name
}

// awaitAccount waits until a namespace has the service account "default".
func awaitAccount(ctx context.Context, client ctrlclient.Client, namespace string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		return client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
}

// define serves a custom resource, whose definition is a manifest, until the spec ends. It
// returns when clients can discover the resource, which is after it is established.
func define(ctx context.Context, resource, manifest string) {
	GinkgoHelper()
	_, errOut, err := kubectl.Run(ctx, manifest, "create", "-f", "-")
	Expect(err).NotTo(HaveOccurred(), errOut)
	DeferCleanup(func(ctx SpecContext) { run(ctx, "delete", "crd", resource, "--ignore-not-found", "--timeout=5m") })
	Eventually(ctx, func() error {
		_, _, err := kubectl.Run(ctx, "", "get", resource, "--all-namespaces")
		return err
	}).Should(Succeed())
}

// run runs kubectl and returns what it prints.
func run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, errOut, err := kubectl.Run(ctx, "", args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, errOut)
	return out
}
