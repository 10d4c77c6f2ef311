package controllers

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

// cluster is a server of its own, for specs whose nodes die: the suite's nodes
// must not.
type cluster struct {
	server  *launch.Server
	flags   []string
	manager *launch.Process
	client  ctrlclient.Client
	kubectl launch.Kubectl
	nodes   *simulate.Nodes
}

// beat is the time between two heartbeats of a cluster's nodes.
const beat = 500 * time.Millisecond

// newCluster starts a server and a manager with flags. They end after the last
// spec of the container.
func newCluster(ctx context.Context, flags ...string) *cluster {
	GinkgoHelper()
	return newClusterOf(ctx, nil, flags...)
}

// newClusterOf is newCluster with flags of the server.
func newClusterOf(ctx context.Context, serverFlags []string, flags ...string) *cluster {
	GinkgoHelper()
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	c := &cluster{flags: append(flags, managerFlags...)}
	c.server, err = launch.Up(ctx, filepath.Join(dir, "data"), append(serverFlags, "--controllers=")...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { c.server.Kill() })
	c.client, err = ctrlclient.New(c.server.Config, ctrlclient.Options{Scheme: client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	c.kubectl = launch.Kubectl{Kubeconfig: c.server.Kubeconfig, Home: dir}
	c.nodes, err = simulate.StartBeating(c.server.Config, beat)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.nodes.Stop)
	c.startManager(ctx)
	DeferCleanup(func() { c.manager.Kill() })
	awaitAccount(ctx, c.client, "default")
	return c
}

func (c *cluster) killManager(ctx context.Context) {
	GinkgoHelper()
	c.manager.Kill()
	endLease(ctx, c.client)
}

func (c *cluster) startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	c.manager, err = c.server.Manager(ctx, c.flags...)
	Expect(err).NotTo(HaveOccurred())
}

// run runs kubectl and returns what it prints.
func (c *cluster) run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, errOut, err := c.kubectl.Run(ctx, "", args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, errOut)
	return out
}

// printed is what a kubectl command prints, for Eventually.
func (c *cluster) printed(ctx context.Context, args ...string) func() string {
	return func() string {
		out, errOut, err := c.kubectl.Run(ctx, "", args...)
		if err != nil {
			return errOut
		}
		return out
	}
}

// addNodes creates nodes that are removed after the spec.
func (c *cluster) addNodes(ctx context.Context, change func(*corev1.Node), names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(c.nodes.Add(ctx, name, change)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			c.nodes.Kill(name)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(ctrlclient.IgnoreNotFound(c.client.Delete(ctx, node))).To(Succeed())
		})
	}
}

// addPod creates a pod on a node, which must run it.
func (c *cluster) addPod(ctx context.Context, name, node string, change func(*corev1.Pod)) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	if change != nil {
		change(pod)
	}
	Expect(c.client.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(ctrlclient.IgnoreNotFound(c.client.Delete(ctx, pod, ctrlclient.GracePeriodSeconds(0)))).To(Succeed())
	})
	if node != "" && !ends(pod) {
		Eventually(c.printed(ctx, "get", "pod", name, "-o", "jsonpath={.status.phase}")).Should(Equal("Running"))
	}
}

// ends reports whether a simulated node ends the pod as soon as it has started.
func ends(pod *corev1.Pod) bool { return pod.Annotations[simulate.ExitAnnotation] != "" }

// tolerates is a pod's toleration of a NoExecute taint for some seconds.
func tolerates(key string, seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
}
