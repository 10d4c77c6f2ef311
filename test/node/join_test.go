package node

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/test/launch"
)

// The machine of the suite joins its cluster as another node, which has the defaults of a
// machine of its own but for its ports.
var _ = Describe("a machine that joins by one command", func() {
	It("runs pods, keeps them while its agent restarts, and has nothing left after a reset", func(ctx SpecContext) {
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			Skip("svclet join would make svclet a service of this machine")
		}
		if _, err := net.InterfaceByName(containerd.DefaultBridge); err == nil {
			Skip("another node with the default bridge runs on this machine")
		}
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		etc, root := filepath.Join(dir, "etc"), filepath.Join(dir, "joined")
		svclet := func(ctx context.Context, args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
			return string(out), err
		}
		reset := func(ctx SpecContext) {
			GinkgoHelper()
			out, err := svclet(ctx, "reset", "--config-dir="+etc, "--root-dir="+root)
			Expect(err).NotTo(HaveOccurred(), out)
		}
		DeferCleanup(func(ctx SpecContext) {
			reset(ctx)
			Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joined"}}))).To(Succeed())
		})

		By("joining")
		line, err := exec.CommandContext(ctx, svc, "token", "create", "--print-join-command", "--svcconfig="+node.Kubeconfig, "--server="+node.Config.Host).Output()
		Expect(err).NotTo(HaveOccurred())
		words := append(strings.Fields(string(line))[1:], "--config-dir="+etc, "--root-dir="+root, "--",
			"--hostname-override=joined", "--port="+freePort(), "--healthz-port=0", "--eviction-hard=memory.available<0%", "--image-gc-high-threshold=100")
		agent, err := launch.StartCommand(exec.Command(program, words...))
		Expect(err).NotTo(HaveOccurred())
		end := func() {
			GinkgoHelper()
			_, err := agent.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(func() {
			end()
			if CurrentSpecReport().Failed() {
				AddReportEntry("svclet printed", lastLines(agent.Output()))
			}
		})
		Eventually(func() (*corev1.Node, error) {
			n := &corev1.Node{}
			return n, client.Get(ctx, ctrlclient.ObjectKey{Name: "joined"}, n)
		}).Should(conditionOf(corev1.NodeReady, corev1.ConditionTrue), agent.Output)
		out, err := svclet(ctx, words...)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("svclet join: this machine has joined a cluster already"))

		By("running a pod")
		archive := filepath.Join(dir, "joined.tar")
		Expect(images[1].WriteFile(archive)).To(Succeed())
		out, err = svclet(ctx, "image", "import", "--root-dir="+root, archive)
		Expect(err).NotTo(HaveOccurred(), out)
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: joined
  containers: [{name: main, image: "localhost/svc/server:1", imagePullPolicy: Never, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}]
`)
		p := s.await(ctx, "web", beReady())
		Expect(get(ctx, "http://"+p.Status.PodIP+":8080/")).To(Equal("web\n"))

		By("restarting its agent")
		end()
		at := strings.Index(agent.Output(), "To start it again: svclet ")
		Expect(at).To(BeNumerically(">=", 0), agent.Output())
		again, _, _ := strings.Cut(agent.Output()[at+len("To start it again: svclet "):], "\n")
		agent, err = launch.StartCommand(exec.Command(program, strings.Fields(again)...))
		Expect(err).NotTo(HaveOccurred())
		s.run(ctx, "annotate", "pod", "web", "seen=again")
		Eventually(func() (string, error) { return get(ctx, "http://"+p.Status.PodIP+":8080/") }).Should(Equal("web\n"))
		Expect(s.await(ctx, "web", beReady())).To(container("main", HaveField("RestartCount", BeZero())))

		By("resetting it")
		out, err = svclet(ctx, "reset", "--config-dir="+etc, "--root-dir="+root)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("--root-dir: " + root + " is in use by another svclet"))
		end()
		reset(ctx)
		Expect(launch.Left(root, filepath.Join(root, "containerd"), containerd.DefaultBridge)).To(Succeed())
		for _, path := range []string{etc, root, "/sys/fs/cgroup/memory/kubepods", "/sys/fs/cgroup/kubepods"} {
			Expect(path).NotTo(BeAnExistingFile())
		}
		logs, err := filepath.Glob("/var/log/pods/*_" + string(p.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(logs).To(BeEmpty())
	})
})
