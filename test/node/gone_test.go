package node

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// aboutClients matches the lines that the libraries log about clients that have
// disconnected.
const aboutClients = `proxying|Copying std|unable to write|not an metav1.Status|abort|ost-timeout|watch event`

var _ = Describe("a client that goes away", Ordered, ContinueOnFailure, func() {
	var s space

	BeforeAll(func(ctx SpecContext) {
		s = newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata:
  name: talker
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    stdin: true
    command: [sh, -c, 'while true; do echo on and on; sleep 0.01; done']
  - name: web
    image: localhost/svc/server:1
`)
		s.await(ctx, "talker", beReady())
	})

	DescribeTable("is no error", func(ctx SpecContext, want string, args ...string) {
		before := len(node.Output())
		cmd := s.command(ctx, args...)
		var out syncBuffer
		cmd.Stdout = &out
		_, err := cmd.StdinPipe() // closed when the command ends
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		Eventually(out.String).Should(ContainSubstring(want))
		Expect(cmd.Process.Kill()).To(Succeed())
		var exit *exec.ExitError
		Expect(cmd.Wait()).To(BeAssignableToTypeOf(exit))
		// The agent notices it when the next write fails.
		Consistently(func() string { return node.Output()[before:] }).ShouldNot(MatchRegexp(aboutClients))
	},
		Entry("while it watches", "talker", "get", "pods", "--watch"),
		Entry("while it follows a log", "on and on", "logs", "talker", "--container=main", "--follow"),
		Entry("while a command runs for it", "on and on", "exec", "-i", "talker", "--container=main", "--", "sh", "-c", "while true; do echo on and on; sleep 0.01; done"),
		Entry("while it is attached", "on and on", "attach", "-i", "talker", "--container=main"),
		Entry("while it forwards ports", "Forwarding from", "port-forward", "talker", ":8080"),
	)
})
