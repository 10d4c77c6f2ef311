package node

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/test/launch"
)

// joining is a machine that joins the suite's cluster: this machine, or a network
// namespace of it.
type joining struct {
	name, program, etc, root string
	// enter is the command line that enters the network namespace; empty for none.
	enter []string
	agent *launch.Process // nil while it does not run
}

// newJoining returns a machine that has not joined. It is reset after the spec.
func newJoining(name, namespace string) *joining {
	GinkgoHelper()
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		Skip("svclet join would make svclet a service of this machine")
	}
	m := &joining{name: name, etc: filepath.Join(dir, name, "etc"), root: filepath.Join(dir, name, "root")}
	if namespace != "" {
		m.enter = []string{"nsenter", "--net=/run/netns/" + namespace}
	} else if _, err := net.InterfaceByName(containerd.DefaultBridge); err == nil {
		Skip("another node with the default bridge runs on this machine")
	}
	var err error
	m.program, err = launch.Svclet.Program()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		if m.agent != nil && CurrentSpecReport().Failed() {
			AddReportEntry("svclet printed", lastLines(m.agent.Output()))
		}
		m.end()
		m.reset(ctx)
		Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
	})
	return m
}

func (m *joining) command(ctx context.Context, args ...string) *exec.Cmd {
	words := append(append(append([]string{}, m.enter...), m.program), args...)
	return exec.CommandContext(ctx, words[0], words[1:]...)
}

// svclet runs a command of svclet.
func (m *joining) svclet(ctx context.Context, args ...string) (string, error) {
	out, err := m.command(ctx, args...).CombinedOutput()
	return string(out), err
}

// start runs an agent, which outlives ctx.
func (m *joining) start(args ...string) {
	GinkgoHelper()
	var err error
	m.agent, err = launch.StartCommand(m.command(context.Background(), args...))
	Expect(err).NotTo(HaveOccurred())
}

// join runs svclet join, with further flags of svclet, until the node is ready. It returns
// the arguments.
func (m *joining) join(ctx SpecContext, flags ...string) []string {
	GinkgoHelper()
	line, err := exec.CommandContext(ctx, svc, "token", "create", "--print-join-command", "--svcconfig="+node.Kubeconfig, "--server="+node.Config.Host).Output()
	Expect(err).NotTo(HaveOccurred())
	words := append(strings.Fields(string(line))[1:], "--config-dir="+m.etc, "--root-dir="+m.root, "--",
		"--hostname-override="+m.name, "--port="+freePort(), "--healthz-port=0", "--eviction-hard=memory.available<0%", "--image-gc-high-threshold=100")
	words = append(words, flags...)
	m.start(words...)
	Eventually(func() (*corev1.Node, error) {
		n := &corev1.Node{}
		return n, client.Get(ctx, ctrlclient.ObjectKey{Name: m.name}, n)
	}).Should(conditionOf(corev1.NodeReady, corev1.ConditionTrue), m.agent.Output)
	return words
}

// approve approves the serving certificate of the agent, as an administrator does.
func (m *joining) approve(ctx context.Context) {
	GinkgoHelper()
	var names []string
	Eventually(func() ([]string, error) {
		var list certificatesv1.CertificateSigningRequestList
		if err := client.List(ctx, &list); err != nil {
			return nil, err
		}
		names = nil
		for _, csr := range list.Items {
			if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && csr.Spec.Username == "system:node:"+m.name && len(csr.Status.Conditions) == 0 {
				names = append(names, csr.Name)
			}
		}
		return names, nil
	}).ShouldNot(BeEmpty())
	run(ctx, append([]string{"certificate", "approve"}, names...)...)
}

// again starts the agent as its last output says.
func (m *joining) again() {
	GinkgoHelper()
	output := m.agent.Output()
	at := strings.Index(output, "To start it again: svclet ")
	Expect(at).To(BeNumerically(">=", 0), output)
	line, _, _ := strings.Cut(output[at+len("To start it again: svclet "):], "\n")
	m.start(strings.Fields(line)...)
}

// end stops the agent.
func (m *joining) end() {
	GinkgoHelper()
	if m.agent == nil {
		return
	}
	_, err := m.agent.Stop(launch.Patience)
	Expect(err).NotTo(HaveOccurred())
}

// kill kills the agent, and containerd, which then nothing starts.
func (m *joining) kill() {
	GinkgoHelper()
	m.agent.Kill()
	pid := listener(containerd.Config{Dir: filepath.Join(m.root, "containerd")}.Endpoint())
	Expect(pid).NotTo(BeZero())
	Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
}

// reset removes all that svclet has made, if it is still there.
func (m *joining) reset(ctx SpecContext) {
	GinkgoHelper()
	if _, err := os.Stat(m.root); os.IsNotExist(err) {
		return
	}
	out, err := m.svclet(ctx, "reset", "--config-dir="+m.etc, "--root-dir="+m.root)
	Expect(err).NotTo(HaveOccurred(), out)
}

// importImage gives the machine an image.
func (m *joining) importImage(ctx context.Context, image launch.Image) {
	GinkgoHelper()
	archive := filepath.Join(dir, m.name+".tar")
	Expect(image.WriteFile(archive)).To(Succeed())
	out, err := m.svclet(ctx, "image", "import", "--root-dir="+m.root, archive)
	Expect(err).NotTo(HaveOccurred(), out)
}
