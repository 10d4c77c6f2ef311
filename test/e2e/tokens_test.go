package e2e

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/internal/jointoken"
	"svc.dev/svc/test/launch"
)

// runSVC runs a command of svc against the suite's server, and returns what it prints.
func runSVC(ctx context.Context, args ...string) (out, errOut string, err error) {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append(args, "--svcconfig="+server.Kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// mustSVC is runSVC of a command that must succeed.
func mustSVC(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, errOut, err := runSVC(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), "svc %v: %s", args, errOut)
	return out
}

var _ = Describe("svc token", func() {
	// whoami returns the status and the body of a review of the token's user.
	whoami := func(token string) answer {
		return send(request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: `{}`,
			contentType: "application/json", token: token, anonymous: true})
	}

	It("creates a token that authenticates until it is deleted", func(ctx SpecContext) {
		token := strings.TrimSpace(mustSVC(ctx, "token", "create", "--description=for racks", "--groups=system:bootstrappers:racks"))
		id, _, _ := strings.Cut(token, ".")
		Expect(whoami(token).body).To(And(ContainSubstring(`"username":"system:bootstrap:`+id+`"`),
			ContainSubstring(`"groups":["system:bootstrappers","system:bootstrappers:racks","system:authenticated"]`)))
		Expect(send(request{method: http.MethodGet, path: "/api/v1/namespaces/kube-system/secrets", token: token, anonymous: true}).status).To(Equal(403))

		Expect(mustSVC(ctx, "token", "list")).To(MatchRegexp(token + ` +23h +.* +signing,authentication +for racks +system:bootstrappers:racks\n`))
		_, errOut, err := runSVC(ctx, "token", "create", token)
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(Equal("svc token create: a token with the ID " + id + " exists already: delete it first, or choose another\n"))

		Expect(mustSVC(ctx, "token", "delete", token)).To(Equal(`bootstrap token "` + id + "\" deleted\n"))
		Eventually(func() int { return whoami(token).status }).Should(Equal(401)) // a valid token is cached for some seconds
		_, errOut, err = runSVC(ctx, "token", "delete", id)
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(Equal("svc token delete: there is no token with the ID " + id + "\n"))
	})

	It("prints a kubeconfig of the token", func(ctx SpecContext) {
		file := GinkgoT().TempDir() + "/bootstrap"
		config := mustSVC(ctx, "token", "create", "--print-kubeconfig", "--ttl=1h")
		Expect(os.WriteFile(file, []byte(config), 0o600)).To(Succeed())
		k := newSandbox(ctx)
		k.Kubeconfig = file
		Expect(k.run("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")).To(ContainSubstring("system:bootstrappers:kubeadm:default-node-token"))
	})

	It("prints the command by which a machine joins, and publishes what the machine reads", func(ctx SpecContext) {
		command := mustSVC(ctx, "token", "create", "--print-join-command", "--server="+server.Config.Host)
		words := strings.Fields(command)
		Expect(words).To(HaveLen(7), command)
		id, key, err := jointoken.Parse(words[4])
		Expect(err).NotTo(HaveOccurred())
		Expect(words).To(Equal([]string{"svclet", "join", server.Config.Host, "--token", id + "." + key, "--ca-cert-hash", words[6]}))
		Eventually(func(g Gomega) {
			info := send(request{method: http.MethodGet, path: "/api/v1/namespaces/kube-public/configmaps/cluster-info", anonymous: true})
			g.Expect(info.status).To(Equal(200), "every client may read it")
			Expect(info.body).To(ContainSubstring("certificate-authority-data"))
		}).Should(Succeed())
	})

	It("prints the command beside the token, or why there is none", func(ctx SpecContext) {
		out, errOut, err := runSVC(ctx, "token", "create", "--server="+server.Config.Host)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`\A[a-z0-9]{6}\.[a-z0-9]{16}\n\z`))
		Expect(errOut).To(MatchRegexp(`\A\nUntil \S+Z a machine joins with the token by this command:\n\n` +
			"  svclet join " + regexp.QuoteMeta(server.Config.Host) + " --token " + regexp.QuoteMeta(strings.TrimSpace(out)) + ` --ca-cert-hash sha256:[0-9a-f]{64}\n\z`))

		_, errOut, err = runSVC(ctx, "token", "create", "--ttl=0", "--server="+server.Config.Host)
		Expect(err).NotTo(HaveOccurred())
		Expect(errOut).To(HavePrefix("\nA machine joins with the token by this command:\n\n  svclet join " + server.Config.Host + " --token "))
		_, errOut, err = runSVC(ctx, "token", "create", "--usages=signing")
		Expect(err).NotTo(HaveOccurred())
		Expect(errOut).To(BeEmpty())
	})

	It("does not authenticate with a token of another key, nor with one for signing only", func(ctx SpecContext) {
		token := strings.TrimSpace(mustSVC(ctx, "token", "create"))
		id, _, _ := strings.Cut(token, ".")
		Expect(whoami(id + ".0123456789abcdef").status).To(Equal(401))
		signing := strings.TrimSpace(mustSVC(ctx, "token", "create", "--usages=signing"))
		Expect(whoami(signing).status).To(Equal(401))
	})
})
