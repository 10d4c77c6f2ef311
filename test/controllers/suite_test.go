// Package controllers tests the controllers with real parts: an API server on
// its own etcd, a controller manager in a process of its own that specs may
// kill, simulated nodes, and kubectl where a person would use it.
package controllers

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

// managerFlags shorten what specs would have to wait for.
var managerFlags = []string{
	"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms",
	"--namespace-deletion-grace=1s",
}

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(time.Second)
	RunSpecs(t, "controllers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	server, err = launch.Up(ctx, filepath.Join(dir, "data"), append(auditFlags(dir), "--controllers=")...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		code, err := server.Stop(20 * time.Second)
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
		code, err := manager.Stop(20 * time.Second)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", manager.Output())
	})
})

// startManager starts the manager anew; the one before must have ended.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = server.Manager(ctx, managerFlags...)
	Expect(err).NotTo(HaveOccurred())
	managerLogged = 0
}

// managerLogged is how much of the manager's log earlier reports have shown.
var managerLogged int

var _ = ReportAfterEach(func(report SpecReport) {
	if manager == nil {
		return
	}
	log := manager.Output()
	if report.Failed() && len(log) > managerLogged {
		AddReportEntry("the manager's log during this spec", log[managerLogged:])
	}
	managerLogged = len(log)
})

// newNamespace makes a namespace that is deleted after the spec.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(client.Create(ctx, ns)).To(Succeed())
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
