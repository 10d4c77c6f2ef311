package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("kubectl", Ordered, ContinueOnFailure, func() {
	var s space

	BeforeAll(func(ctx SpecContext) {
		s = newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata:
  name: shell
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    stdin: true
    command: [sh, -c, 'while read line; do echo "got $line"; done; exec sleep 1000']
  - name: web
    image: localhost/svc/server:1
    readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
  - name: terminal
    image: localhost/svc/busybox:1
    stdin: true
    tty: true
    command: [sh]
`)
		s.await(ctx, "shell", beReady())
	})

	Describe("exec", func() {
		It("runs a command, and keeps its streams apart", func(ctx SpecContext) {
			out, errOut, err := s.kubectl().Run(ctx, "", "exec", "shell", "--container=main", "--", "sh", "-c", "echo out; echo err >&2")
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(Equal("out\n"))
			Expect(errOut).To(Equal("err\n"))
		})

		It("returns the command's exit code", func(ctx SpecContext) {
			_, errOut, err := s.kubectl().Run(ctx, "", "exec", "shell", "--container=main", "--", "sh", "-c", "exit 7")
			var exit *exec.ExitError
			Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
			Expect(exit.ExitCode()).To(Equal(7))
			Expect(errOut).To(Equal("command terminated with exit code 7\n"))
		})

		It("passes the whole input to the command", func(ctx SpecContext) {
			const size = 8 << 20
			out := s.feed(ctx, strings.Repeat("x", size), "exec", "-i", "shell", "--container=main", "--", "wc", "-c")
			Expect(strings.TrimSpace(out)).To(Equal(fmt.Sprint(size)))
		})

		It("returns large output completely", func(ctx SpecContext) {
			out := s.run(ctx, "exec", "shell", "--container=main", "--", "sh", "-c", "head -c 8388608 /dev/zero | tr '\\0' y")
			Expect(out).To(HaveLen(8 << 20))
		})

		It("gives the command a terminal of the size of the user's", func(ctx SpecContext) {
			cmd := s.command(ctx, "exec", "-it", "shell", "--container=main", "--", "sh", "-c", "tty; until stty size 2>/dev/null | grep '30 100'; do sleep 0.1; done; read answer; echo \"it is $answer\"; exit 5")
			// The size is set after the start of the command.
			terminal := startInTerminal(cmd, 30, 100)
			Eventually(terminal.output).Should(MatchRegexp(`/dev/pts/\d+\r\n30 100\r\n`))
			terminal.write("fine\n")
			Expect(cmd.Wait()).To(MatchError("exit status 5"))
			Eventually(terminal.output).Should(ContainSubstring("it is fine\r\n"))
		})

		DescribeTable("reports why it cannot", func(ctx SpecContext, want string, args ...string) {
			out, err := s.try(ctx, append([]string{"exec"}, args...)...)
			Expect(err).To(HaveOccurred())
			Expect(out).To(ContainSubstring(want))
		},
			Entry("for a command that does not exist", "nothing-there", "shell", "--container=main", "--", "nothing-there"),
			Entry("for a container that the pod does not have", "container absent is not valid for pod shell", "shell", "--container=absent", "--", "true"),
			Entry("for a pod that does not exist", `pods "absent" not found`, "absent", "--", "true"),
		)
	})

	Describe("attach", func() {
		It("shows a container's output, and passes input to it", func(ctx SpecContext) {
			cmd := s.command(ctx, "attach", "-i", "shell", "--container=main")
			in, err := cmd.StdinPipe()
			Expect(err).NotTo(HaveOccurred())
			out, err := cmd.StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			Expect(cmd.Start()).To(Succeed())
			_, err = io.WriteString(in, "one\ntwo\n")
			Expect(err).NotTo(HaveOccurred())
			lines := bufio.NewScanner(out)
			for _, want := range []string{"got one", "got two"} {
				Expect(lines.Scan()).To(BeTrue())
				Expect(lines.Text()).To(Equal(want))
			}
			Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
			Expect(cmd.Wait()).To(HaveOccurred())
			s.await(ctx, "shell", container("main", And(running(), HaveField("RestartCount", BeZero()))))
		})

		It("joins a container's terminal", func(ctx SpecContext) {
			cmd := s.command(ctx, "attach", "-it", "shell", "--container=terminal")
			terminal := startInTerminal(cmd, 40, 120)
			terminal.write("echo $((20+3)); until stty size 2>/dev/null | grep '40 120'; do sleep 0.1; done\n")
			Eventually(terminal.output).Should(MatchRegexp(`23\r\n(?s:.*)40 120\r\n`))
			terminal.write("exit 0\n")
			Expect(cmd.Wait()).To(Succeed())
			s.await(ctx, "shell", container("terminal", restarted(1)))
		})

		It("runs a pod with kubectl run --rm until the client disconnects", func(ctx SpecContext) {
			out := s.feed(ctx, "hello\n", "run", "once", "--image="+busybox, "--image-pull-policy=Never", "--rm", "-i", "--restart=Never", "--quiet", "--pod-running-timeout=3m",
				"--command", "--", "sh", "-c", "read line; echo \"$line to you\"")
			Expect(out).To(ContainSubstring("hello to you\n"))
			_, err := s.try(ctx, "get", "pod", "once")
			Expect(err).To(HaveOccurred())
		})
	})

	Describe("port-forward", func() {
		It("reaches a pod's port, and reports a port without a listener", func(ctx SpecContext) {
			cmd := s.command(ctx, "port-forward", "shell", ":8080", ":9")
			out, err := cmd.StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			var errOut syncBuffer
			cmd.Stderr = &errOut
			Expect(cmd.Start()).To(Succeed())
			DeferCleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			ports := map[string]string{}
			for lines := bufio.NewScanner(out); len(ports) < 2 && lines.Scan(); {
				from, to, found := strings.Cut(strings.TrimPrefix(lines.Text(), "Forwarding from 127.0.0.1:"), " -> ")
				if found && !strings.Contains(from, "[") {
					ports[to] = from
				}
			}
			for range 3 {
				Expect(get(ctx, "http://127.0.0.1:"+ports["8080"])).To(Equal("shell\n"))
			}
			_, err = get(ctx, "http://127.0.0.1:"+ports["9"])
			Expect(err).To(HaveOccurred())
			Eventually(errOut.String).Should(ContainSubstring("connection refused"))
		})
	})

	It("goes on with an exec and with a log that is followed while the API server's certificate is replaced", func(ctx SpecContext) {
		shell := s.command(ctx, "exec", "-i", "shell", "--container=main", "--", "sh")
		in, err := shell.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		out, err := shell.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(shell.Start()).To(Succeed())
		DeferCleanup(func() { _ = shell.Process.Kill(); _ = shell.Wait() })
		follow := s.command(ctx, "logs", "--follow", "shell", "--container=main")
		logged, err := follow.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(follow.Start()).To(Succeed())
		DeferCleanup(func() { _ = follow.Process.Kill(); _ = follow.Wait() })
		answers, log := bufio.NewScanner(out), bufio.NewScanner(logged)
		// say makes the container log a line by the shell, which answers with the same one.
		say := func(line string) {
			GinkgoHelper()
			_, err := fmt.Fprintf(in, "echo %[1]s >/proc/1/fd/1; echo %[1]s\n", line)
			Expect(err).NotTo(HaveOccurred())
			for _, from := range []*bufio.Scanner{answers, log} {
				Expect(scanTo(from, line)).To(BeTrue(), "%q is not there", line)
			}
		}
		say("before")
		replaceCertificate()
		say("after")
		Expect(s.run(ctx, "exec", "shell", "--container=main", "--", "echo", "again")).To(Equal("again\n"))
		Expect(in.Close()).To(Succeed())
		Expect(shell.Wait()).To(Succeed())
	})

	Describe("cp", func() {
		It("copies files and directories both ways", func(ctx SpecContext) {
			from, to := newDir(), newDir()
			Expect(os.MkdirAll(filepath.Join(from, "tree/deep"), 0o755)).To(Succeed())
			content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
			Expect(os.WriteFile(filepath.Join(from, "tree/deep/file"), content, 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(from, "tree/empty"), nil, 0o600)).To(Succeed())
			s.run(ctx, "cp", filepath.Join(from, "tree"), "shell:/tmp/tree", "--container=main")
			Expect(s.run(ctx, "exec", "shell", "--container=main", "--", "find", "/tmp/tree", "-type", "f")).To(ContainSubstring("/tmp/tree/deep/file\n"))
			s.run(ctx, "cp", "shell:/tmp/tree", filepath.Join(to, "tree"), "--container=main")
			Expect(os.ReadFile(filepath.Join(to, "tree/deep/file"))).To(Equal(content))
			Expect(filepath.Join(to, "tree/empty")).To(BeARegularFile())
		})
	})

	Describe("debug", func() {
		It("adds an ephemeral container that sees the processes of a running one", func(ctx SpecContext) {
			s.run(ctx, "debug", "shell", "--image="+busybox, "--image-pull-policy=Never", "--target=web", "--container=looker", "--profile=general",
				"--", "sh", "-c", "ps | grep /serve[r]; echo hostname $(hostname)")
			p := s.await(ctx, "shell", container("looker", terminated("Completed", 0)))
			Expect(p.Spec.EphemeralContainers).To(HaveLen(1))
			Expect(s.run(ctx, "logs", "shell", "--container=looker")).To(And(ContainSubstring(" 1 root"), ContainSubstring("/server"), HaveSuffix("hostname shell\n")))
			Expect(p).To(inPhase(corev1.PodRunning))
			Expect(p).To(container("web", HaveField("RestartCount", BeZero())))
		})

		It("works at the terminal of the added container", func(ctx SpecContext) {
			cmd := s.command(ctx, "debug", "-it", "shell", "--image="+busybox, "--image-pull-policy=Never", "--container=seer", "--profile=general", "--", "sh")
			terminal := startInTerminal(cmd, 24, 80)
			terminal.write("echo $((6*7))\n")
			Eventually(terminal.output).Should(ContainSubstring("42\r\n"))
			terminal.write("exit\n") // sent separately: earlier output might be lost at the exit
			Expect(cmd.Wait()).To(Succeed())
		})

		It("copies a pod, with another command", func(ctx SpecContext) {
			s.run(ctx, "debug", "shell", "--copy-to=shell-copy", "--container=main", "--profile=general", "--", "sh", "-c", "echo copied; exec sleep 1000")
			s.await(ctx, "shell-copy", beReady())
			Eventually(func() (string, error) { return s.try(ctx, "logs", "shell-copy", "--container=main") }).Should(Equal("copied\n"))
		})

		It("shows the node's file system and processes", func(ctx SpecContext) {
			var nodes corev1.NodeList
			Expect(client.List(ctx, &nodes)).To(Succeed())
			s.run(ctx, "debug", "node/"+nodes.Items[0].Name, "--image="+busybox, "--image-pull-policy=Never", "--profile=general", "--", "sh", "-c", "ls /host"+node.DataDir+"; cat /proc/1/comm")
			var pods corev1.PodList
			Eventually(func(g Gomega) {
				g.Expect(client.List(ctx, &pods)).To(Succeed())
				var names []string
				for _, p := range pods.Items {
					if p.Namespace == s.name && strings.HasPrefix(p.Name, "node-debugger-") {
						names = append(names, p.Name)
						g.Expect(p.Status.Phase).To(Equal(corev1.PodSucceeded))
					}
				}
				g.Expect(names).To(HaveLen(1))
				init, err := os.ReadFile("/proc/1/comm")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(s.run(ctx, "logs", names[0])).To(And(ContainSubstring("svc.lock\n"), HaveSuffix(string(init))))
			}).Should(Succeed())
		})
	})
})

// scanTo reads lines to one with the text, and reports whether there is one.
func scanTo(lines *bufio.Scanner, text string) bool {
	for lines.Scan() {
		if lines.Text() == text {
			return true
		}
	}
	return false
}

// replaceCertificate gives the API server another serving certificate of the same names, and
// waits until it has it. The first one comes back after the spec.
func replaceCertificate() {
	GinkgoHelper()
	authority, err := node.Authority()
	Expect(err).NotTo(HaveOccurred())
	pki := filepath.Join(node.DataDir, "pki")
	for _, file := range []string{"apiserver.crt", "apiserver.key"} {
		content, err := os.ReadFile(filepath.Join(pki, file))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.WriteFile, filepath.Join(pki, file), content, os.FileMode(0o600))
	}
	served := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(node.Config.Host, "https://"), &tls.Config{InsecureSkipVerify: true})
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	first := served()
	names := slices.Clone(first.DNSNames)
	for _, ip := range first.IPAddresses {
		names = append(names, ip.String())
	}
	Expect(authority.Server(pki, "apiserver", first.Subject.CommonName, names...)).To(Succeed())
	Eventually(served).ShouldNot(HaveField("SerialNumber", first.SerialNumber))
}

// get reads a URL.
func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, content)
	}
	return string(content), err
}
