package node

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/mixin"
)

// The machine of the suite joins its cluster as another node, which has the defaults of a
// machine of its own but for its ports.
var _ = Describe("a machine that joins by one command", func() {
	It("runs pods, keeps them while its agent restarts, and has nothing left after a reset", func(ctx SpecContext) {
		m := newJoining("joined", "")

		By("joining")
		words := m.join(ctx)
		out, err := m.svclet(ctx, words...)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("svclet join: this machine has joined a cluster already"))

		By("reporting the release of its cluster")
		Eventually(func(g Gomega) {
			var nodes corev1.NodeList
			g.Expect(client.List(ctx, &nodes)).To(Succeed())
			g.Expect(nodes.Items).To(HaveLen(2))
			for _, n := range nodes.Items {
				g.Expect(n.Status.NodeInfo.KubeletVersion).To(HavePrefix("v%d.%d.0", release.Default.Major, release.Default.Minor))
			}
		}).Should(Succeed())

		By("running a pod")
		m.importImage(ctx, images[1])
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

		By("measuring its certificates")
		m.approve(ctx)
		Eventually(func() []string { return mixin.Missing(agentMetrics(ctx, "joined"), mixin.Certificates) }).Should(BeEmpty())

		By("restarting its agent")
		m.end()
		m.again()
		s.run(ctx, "annotate", "pod", "web", "seen=again")
		Eventually(func() (string, error) { return get(ctx, "http://"+p.Status.PodIP+":8080/") }).Should(Equal("web\n"))
		Expect(s.await(ctx, "web", beReady())).To(container("main", HaveField("RestartCount", BeZero())))

		By("resetting it")
		out, err = m.svclet(ctx, "reset", "--config-dir="+m.etc, "--root-dir="+m.root)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("--root-dir: " + m.root + " is in use by a svclet that is not the service of the join: stop it"))
		m.end()
		m.reset(ctx)
		Expect(launch.Left(m.root, filepath.Join(m.root, "containerd"), containerd.DefaultBridge)).To(Succeed())
		for _, path := range []string{m.etc, m.root, "/sys/fs/cgroup/memory/kubepods", "/sys/fs/cgroup/kubepods"} {
			Expect(path).NotTo(BeAnExistingFile())
		}
		logs, err := filepath.Glob("/var/log/pods/*_" + string(p.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(logs).To(BeEmpty())
	})
})
