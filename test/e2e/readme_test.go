package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("the README", func() {
	It("promises nothing in its first five minutes that does not work", func(ctx SpecContext) {
		k := newSandbox(ctx)
		readme, err := os.ReadFile("../../README.md")
		Expect(err).NotTo(HaveOccurred())
		commands := regexp.MustCompile(`(?m)^k .*$`).FindAllString(string(readme), -1)
		Expect(len(commands)).To(BeNumerically(">", 5))

		// The same as the administrator's, in the spec's namespace.
		content, err := os.ReadFile(server.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		k.Kubeconfig = filepath.Join(GinkgoT().TempDir(), "config")
		Expect(os.WriteFile(k.Kubeconfig, content, 0o600)).To(Succeed())
		k.run("config", "set-context", "--current", "--namespace="+k.Namespace)
		k.afterwards("delete", "-f", "testdata/crd.yaml", "--ignore-not-found")

		svc, err := launch.Binary()
		Expect(err).NotTo(HaveOccurred())
		script := "set -euo pipefail\nk() { " + svc + " kubectl \"$@\"; }\n" + strings.Join(commands, "\n")
		shell := exec.CommandContext(ctx, "bash", "-c", script)
		shell.Dir = "../.."
		shell.Env = append(os.Environ(), "KUBECONFIG="+k.Kubeconfig, "HOME="+k.Home, "KUBECACHEDIR="+k.Home)
		out, err := shell.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s\n%s", script, out)
	})
})
