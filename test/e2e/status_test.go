package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

var _ = Describe("svc status and svc down", func() {
	It("report what runs and what is wrong, and end it", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		up, err := launch.Up(ctx, filepath.Join(dir, "data"), launch.WithoutControllers()...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(up.Kill)
		svc, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		run := func(args ...string) (string, error) {
			cmd := exec.CommandContext(ctx, svc, args...)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+up.Kubeconfig)
			out, err := cmd.Output()
			return string(out), err
		}

		Eventually(func(g Gomega) string {
			out, err := run("status")
			g.Expect(err).NotTo(HaveOccurred(), out)
			return out
		}).Should(And(
			ContainSubstring("data    "+up.DataDir+" (of KUBECONFIG)\n"), ContainSubstring("server  "+up.Config.Host+", "),
			MatchRegexp(`memory  svc up \d+ MiB`), HaveSuffix("\nNothing is wrong.\n")))

		more, err := kubernetes.NewForConfig(up.Config)
		Expect(err).NotTo(HaveOccurred())
		_, err = more.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) object {
			out, err := run("status", "-o", "json")
			g.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
			return parse(out)
		}).Should(And(HaveKeyWithValue("running", true), HaveKeyWithValue("pid", BeEquivalentTo(up.Pid())),
			HaveKeyWithValue("problems", ConsistOf("node silent is not ready: its agent has not reported yet"))))

		down := exec.CommandContext(ctx, svc, "down")
		down.Env = append(os.Environ(), "KUBECONFIG="+up.Kubeconfig)
		out, err := down.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(And(
			HavePrefix(fmt.Sprintf("svc down: waiting until svc up (process %d) has ended its requests and closed %s (of KUBECONFIG)\n", up.Pid(), up.DataDir)),
			HaveSuffix("svc up has ended; what was written is kept in "+up.DataDir+"\n")))
		Expect(up.Wait(ctx)).To(BeZero())
		Expect(run("down")).To(Equal("no svc up runs on " + up.DataDir + " (of KUBECONFIG)\n"))
	})
})
