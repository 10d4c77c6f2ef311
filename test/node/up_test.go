package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/pause"
	"svc.dev/svc/test/launch"
)

var _ = Describe("svc up", func() {
	It("reports the name of the node", func() {
		Expect(node.Output()).To(MatchRegexp(`\n  node +\d+ ms  \S+, containerd \d+\.\d+`))
	})

	It("runs only the control plane without root, and reports it in one line", func(ctx SpecContext) {
		home := newDir()
		// Another user may not have access to the directory of the program.
		program := filepath.Join(home, "svc")
		copied, err := exec.Command("cp", svc, program).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", copied)
		Expect(os.Chown(home, nobody, nobody)).To(Succeed())
		asNobody := []string{"--reuid=65534", "--regid=65534", "--clear-groups", program, "up", "--data-dir=" + filepath.Join(home, "data"), "--secure-port=" + freePort()}

		p, err := launch.Start([]string{"HOME=" + home}, "setpriv", asNobody...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Kill)
		Eventually(p.Output).Should(MatchRegexp(`\n  node +\d+ ms  none: only root can run pods\n`))
		Eventually(p.Output).Should(ContainSubstring("Ctrl-C stops it."))
		Expect(p.Stop(launch.Patience)).To(BeZero())

		By("but not if it is to be a node")
		p, err = launch.Start([]string{"HOME=" + home}, "setpriv", append(asNobody, "--node=true")...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Kill)
		Expect(p.Wait(ctx)).To(Equal(1))
		Expect(p.Output()).To(Equal("svc up: --node=true: only root can run pods\n"))
	})

	It("runs pods of the host's network without CAP_NET_ADMIN, and reports in one line what is missing", func(ctx SpecContext) {
		const missing = "svc up: the capability CAP_NET_ADMIN is missing: only pods with hostNetwork run here, services have no proxy, network policies are not enforced, and there is no network of pods\n"
		cgroup, data := fmt.Sprintf("svct%08x", rand.Uint32()), filepath.Join(newDir(), "data")
		Expect(launch.MakeCgroup(cgroup)).To(Succeed())
		p, err := launch.Start(nil, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", svc, "up", "--data-dir="+data, "--secure-port="+freePort(),
			"--node=true", "--node-bridge="+cgroup, "--node-port=0", "--node-healthz-port=0", "--cgroup-root=/"+cgroup)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			p.Kill()
			out, err := exec.CommandContext(ctx, svc, "node", "reset", "--data-dir="+data).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			Expect(launch.RemoveCgroup(cgroup)).To(Succeed())
		})
		Eventually(p.Output).Should(ContainSubstring("Ctrl-C stops it."))
		k := launch.Kubectl{Kubeconfig: filepath.Join(data, "admin.svcconfig"), Home: newDir()}
		out, err := exec.CommandContext(ctx, svc, "image", "import", "--data-dir="+data, filepath.Join(dir, "busybox.tar")).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Eventually(func() error { // after the service account has been created
			_, _, err := k.Run(ctx, sleeper("onnode", "hostNetwork: true"), "apply", "--namespace=default", "--filename=-")
			return err
		}).Should(Succeed())
		Eventually(func() (string, error) {
			out, errOut, err := k.Run(ctx, "", "exec", "--namespace=default", "onnode", "--", "echo", "runs")
			return out + errOut, err
		}).Should(Equal("runs\n"))

		By("svc status")
		Eventually(func() string {
			out, _ := exec.CommandContext(ctx, svc, "status", "--data-dir="+data).CombinedOutput() // it fails, because something is wrong
			return string(out)
		}).Should(ContainSubstring("node " + nodeName() + " has no service proxy: the capability CAP_NET_ADMIN is missing"))

		By("no error of what the capability is for")
		Expect(strings.Count(p.Output(), missing)).To(Equal(1), p.Output())
		Expect(p.Output()).NotTo(Or(ContainSubstring("permitted"), ContainSubstring("ermission denied"), ContainSubstring("nft"), ContainSubstring("iptables")))
	})

	It("runs only the control plane without a runtime, and reports in one line how to install one", func(ctx SpecContext) {
		programs, err := containerd.Find(containerd.DefaultSearch())
		Expect(err).NotTo(HaveOccurred())
		// The programs are hidden in the mount namespace of the command.
		hide := "mount -t tmpfs none " + programs.PluginDir + ` && exec "$@"`
		hidden := []string{"--mount", "sh", "-c", hide, "sh", svc, "up", "--data-dir=" + filepath.Join(newDir(), "data"), "--secure-port=" + freePort()}
		const want = "the set of CNI plugins is missing: apt-get install containernetworking-plugins (on Debian and Ubuntu; other systems name the packages alike)\n"

		p, err := launch.Start(nil, "unshare", hidden...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Kill)
		Eventually(p.Output).Should(MatchRegexp(`\n  node +\d+ ms  none: ` + strings.ReplaceAll(strings.ReplaceAll(want, "(", `\(`), ")", `\)`)))
		Expect(p.Stop(launch.Patience)).To(BeZero())

		By("but not if it is to be a node")
		p, err = launch.Start(nil, "unshare", append(hidden, "--node=true")...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Kill)
		Expect(p.Wait(ctx)).To(Equal(1))
		Expect(p.Output()).To(Equal("svc up: --node=true: " + want))
	})
})

var _ = Describe("svc node reset", func() {
	It("does not reset a node whose svc up is running", func() {
		_, err := node.Reset()
		Expect(err).To(MatchError(ContainSubstring("is in use by process")))
	})

	It("reports that there is no node", func() {
		out, err := exec.Command(svc, "node", "reset", "--data-dir=/nowhere").CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(Equal("svc node reset: --data-dir: /nowhere does not exist: name the directory that svc up was run with\n"))
	})
})

var _ = Describe("svc image import", func() {
	DescribeTable("reports the error in one line", func(ctx SpecContext, make func() []string, want string) {
		args := append([]string{"image", "import", "--data-dir=" + node.DataDir}, make()...)
		out, err := exec.CommandContext(ctx, svc, args...).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(HavePrefix("svc image import: "))
		Expect(string(out)).To(ContainSubstring(want))
		Expect(strings.Count(string(out), "\n")).To(Equal(1), string(out))
	},
		Entry("with no file", func() []string { return nil }, "name the files to import"),
		Entry("with a file that does not exist", func() []string { return []string{"/nowhere/image.tar"} }, "/nowhere/image.tar: no such file or directory"),
		Entry("with a directory", func() []string { return []string{newDir()} }, "it is a directory: an archive was expected"),
		Entry("with a file that is not an archive", func() []string { return []string{svc} }, "it is not a tar archive"),
		Entry("with an archive that is truncated", func() []string {
			whole, err := os.ReadFile(filepath.Join(dir, "busybox.tar"))
			Expect(err).NotTo(HaveOccurred())
			file := filepath.Join(newDir(), "half.tar")
			Expect(os.WriteFile(file, whole[:len(whole)/2], 0o600)).To(Succeed())
			return []string{file}
		}, "it is truncated: write or copy it again"),
		Entry("without a runtime", func() []string {
			return []string{"--container-runtime-endpoint=/nowhere.sock", filepath.Join(dir, "busybox.tar")}
		}, "no containerd answers at unix:///nowhere.sock"),
	)

	It("imports an image that exists already", func(ctx SpecContext) {
		Expect(importImages(ctx, filepath.Join(dir, "busybox.tar"))).To(HavePrefix(busybox + "  sha256:"))
	})
})

var _ = Describe("svc image", func() {
	It("lists images, and does not remove one that the node needs", func(ctx SpecContext) {
		out, err := exec.CommandContext(ctx, svc, "image", "list", "--data-dir="+node.DataDir).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(And(HavePrefix("IMAGE "), ContainSubstring(busybox), ContainSubstring(pause.Name)))
		out, err = exec.CommandContext(ctx, svc, "image", "rm", "--data-dir="+node.DataDir, pause.Name).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(Equal("svc image rm: " + pause.Name + ": the node needs it: it is pinned\n"))
	})

	It("removes an image that no container uses", func(ctx SpecContext) {
		unused := launch.Image{Name: "example.com/unused:1", Files: map[string]launch.ImageFile{"/unused": {Content: []byte("unused")}}}
		archive := filepath.Join(newDir(), "unused.tar")
		Expect(unused.WriteFile(archive)).To(Succeed())
		Expect(importImages(ctx, archive)).To(HavePrefix(unused.Name + "  sha256:"))
		out, err := exec.CommandContext(ctx, svc, "image", "rm", "--data-dir="+node.DataDir, unused.Name).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(Equal(unused.Name + "  removed\n"))
		out, err = exec.CommandContext(ctx, svc, "image", "rm", "--data-dir="+node.DataDir, unused.Name).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(ContainSubstring("there is no such image"))
	})
})

const nobody = 65534

// newDir returns a directory that is removed after the spec.
func newDir() string {
	GinkgoHelper()
	made, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, made)
	return made
}

func freePort() string {
	GinkgoHelper()
	port, err := launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}
