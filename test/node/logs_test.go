package node

import (
	"bufio"
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

var _ = Describe("kubectl logs", Ordered, ContinueOnFailure, func() {
	var s space

	BeforeAll(func(ctx SpecContext) {
		s = newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata:
  name: writer
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - name: prepare
    image: localhost/svc/busybox:1
    command: [printf, prepared]
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'if [ -e /state/began ]; then echo again; else touch /state/began; for i in 1 2 3; do echo line $i; done; sleep 0.2; echo wrong >&2; fi; mkfifo /f; exec 3<>/f; while read line <&3; do [ "$line" = end ] && exit 3; echo "$line"; done']
    volumeMounts: [{name: state, mountPath: /state}]
  - name: other
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo here; exec sleep 1000']
  volumes: [{name: state, emptyDir: {}}]
`)
		s.await(ctx, "writer", beReady())
	})

	all := "line 1\nline 2\nline 3\nwrong\n"
	logs := func(ctx context.Context, args ...string) func() (string, error) {
		return func() (string, error) {
			out, _, err := s.kubectl().Run(ctx, "", append([]string{"logs", "writer", "--container=main"}, args...)...)
			return out, err
		}
	}

	It("shows what a container has written on both streams", func(ctx SpecContext) {
		Eventually(logs(ctx)).Should(Equal(all))
	})

	It("shows the log of an init container, of one without a final newline, and of all containers", func(ctx SpecContext) {
		Expect(s.run(ctx, "logs", "writer", "--container=prepare")).To(Equal("prepared"))
		Eventually(func() (string, error) { return s.try(ctx, "logs", "writer", "--container=other") }).Should(Equal("here\n"))
		out := s.run(ctx, "logs", "writer", "--all-containers", "--prefix")
		Expect(out).To(ContainSubstring("[pod/writer/prepare] prepared"))
		Expect(out).To(ContainSubstring("[pod/writer/main] line 2\n"))
		Expect(out).To(ContainSubstring("[pod/writer/other] here\n"))
	})

	It("shows the last lines, the first bytes, and lines with their times", func(ctx SpecContext) {
		Eventually(logs(ctx, "--tail=2")).Should(HaveSuffix("\nwrong\n"))
		Expect(logs(ctx, "--tail=0")()).To(BeEmpty())
		Expect(logs(ctx, "--limit-bytes=8")()).To(Equal("line 1\nl"))
		Expect(logs(ctx, "--timestamps", "--tail=1")()).To(MatchRegexp(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z wrong\n$`))
	})

	It("shows the lines since a time", func(ctx SpecContext) {
		Expect(logs(ctx, "--since=1h")()).To(Equal(all))
		Eventually(logs(ctx, "--since=1s")).Should(BeEmpty())
		s.exec(ctx, "writer", "echo later > /f")
		Eventually(logs(ctx, "--timestamps", "--tail=1")).Should(HaveSuffix(" later\n"))
		stamped, err := logs(ctx, "--timestamps", "--tail=1")()
		Expect(err).NotTo(HaveOccurred())
		since, _, _ := strings.Cut(stamped, ".") // seconds count
		Expect(logs(ctx, "--since-time="+since+"Z")()).To(Equal("later\n"))
	})

	It("follows a container until it ends, and shows the previous instance's log", func(ctx SpecContext) {
		follow := s.command(ctx, "logs", "writer", "--container=main", "--follow", "--tail=1")
		out, err := follow.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(follow.Start()).To(Succeed())
		lines := bufio.NewScanner(out)
		next := func() string { lines.Scan(); return lines.Text() }
		Expect(next()).To(Equal("later"))
		s.exec(ctx, "writer", "echo 'while I look' > /f")
		Expect(next()).To(Equal("while I look"))
		// The container may end before the command does, which is killed then.
		_ = s.command(ctx, "exec", "writer", "--container=main", "--", "sh", "-c", "echo end > /f").Run()
		Expect(lines.Scan()).To(BeFalse(), "the log goes on: %q", lines.Text())
		Expect(follow.Wait()).To(Succeed())

		s.await(ctx, "writer", container("main", And(running(), restarted(1), terminatedBefore("Error", 3))))
		Expect(logs(ctx, "--previous")()).To(Equal(all + "later\nwhile I look\n"))
		Eventually(logs(ctx)).Should(Equal("again\n"))
	})

	DescribeTable("reports why there is no log", func(ctx SpecContext, want string, args ...string) {
		out, err := s.try(ctx, append([]string{"logs"}, args...)...)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(want))
	},
		Entry("of a container that has not ended before", `previous terminated container "other" in pod "writer" not found`, "writer", "--container=other", "--previous"),
		Entry("of a container that the pod does not have", `container absent is not valid for pod writer`, "writer", "--container=absent"),
		Entry("of a pod that does not exist", `pods "absent" not found`, "absent"),
	)

	It("reports that a container is waiting to start", func(ctx SpecContext) {
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata:
  name: nothing
spec:
  containers:
  - name: main
    image: localhost/svc/nothing:1
    imagePullPolicy: Never
`)
		s.await(ctx, "nothing", container("main", waiting("ErrImageNeverPull")))
		out, err := s.try(ctx, "logs", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`container "main" in pod "nothing" is waiting to start: ErrImageNeverPull`))
		s.await(ctx, "nothing", inPhase(corev1.PodPending))
	})
})
