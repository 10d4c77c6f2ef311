package fleet

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

const (
	// sizeVariable is the environment variable with the number of agents; defaultSize
	// is its default.
	sizeVariable = "FLEET"
	defaultSize  = 20
	// podsPerNode is the number of pods for each agent.
	podsPerNode = 10
	// patience bounds each step.
	patience = 5 * time.Minute
	// spare is how many more goroutines an agent may have than before its first pods:
	// connections stay idle for a while.
	spare = 10
)

// TestEveryPodOfAFleetRunsOnceAndIsDeleted runs the pods of deployments on the
// nodes of many agents, kills and restarts all agents, and deletes the pods.
func TestEveryPodOfAFleetRunsOnceAndIsDeleted(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root on Linux runs agents")
	}
	size := defaultSize
	if text := os.Getenv(sizeVariable); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil || size < 1 {
			t.Fatalf("$%s: %q is no number of agents", sizeVariable, text)
		}
	}
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(patience)
	g.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	dir, err := launch.TempDir()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { os.RemoveAll(dir) })
	server, err := launch.Up(t.Context(), filepath.Join(dir, "data"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	cluster, err := server.Cluster()
	g.Expect(err).NotTo(HaveOccurred())
	program, err := launch.Svclet.Program()
	g.Expect(err).NotTo(HaveOccurred())

	began := time.Now()
	took := func(what string) {
		t.Logf("%s after %s", what, time.Since(began).Round(10*time.Millisecond))
		began = time.Now()
	}
	f, err := Start(t.Context(), server.Config, cluster, program, size)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = f.Stop() // the test has failed already
		}
		if t.Failed() {
			t.Logf("the agents' errors: %q\nthe server's log:\n%s", f.Errors(), server.Output())
		}
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(f.ReadyNodes).Should(Equal(size))
	took("all nodes are ready")
	pods := size * podsPerNode
	// The first pods cause what stays: watches, connections.
	g.Expect(f.Deploy(t.Context(), pods)).To(Succeed())
	g.Eventually(f.ReadyPods).Should(Equal(pods))
	took("all pods are ready")
	g.Expect(f.HeldPods()).To(Equal(pods))
	with := f.goroutines(t.Context(), g)

	created := f.Calls("CreateContainer")
	g.Expect(created).To(Equal(pods))
	g.Expect(f.KillAndRestart()).To(Succeed())
	// Restarted agents have taken over their pods, so they stop them at once when the
	// pods are deleted.
	g.Expect(f.Undeploy(t.Context())).To(Succeed())
	g.Expect(f.Deploy(t.Context(), pods)).To(Succeed())
	g.Eventually(f.calls("CreateContainer")).Should(Equal(created + pods))
	g.Eventually(f.Pods).Should(Equal(pods))
	g.Eventually(f.ReadyPods).Should(Equal(pods))
	g.Eventually(f.HeldPods).Should(Equal(pods))
	g.Expect(f.RestartedPods()).To(BeZero())
	g.Expect(f.Calls("CreateContainer")).To(Equal(created + pods))
	took("all agents are killed, and all pods replaced,")
	g.Expect(f.goroutines(t.Context(), g)).To(BeNumerically("<=", with+spare*size), "goroutines of all agents")

	g.Expect(f.Undeploy(t.Context())).To(Succeed())
	g.Eventually(f.Pods).Should(BeZero())
	took("all pods are gone")
	g.Eventually(f.HeldPods).Should(BeZero())
	g.Eventually(f.LeftDirs).Should(BeEmpty())
	g.Expect(f.Errors()).To(BeEmpty())
	stopped = true
	g.Expect(f.Stop()).To(Succeed())
	took("all agents have ended")
}

func (f *Fleet) calls(method string) func() int {
	return func() int { return f.Calls(method) }
}

func (f *Fleet) goroutines(ctx context.Context, g *WithT) int {
	var n int
	g.Eventually(func() (err error) { // the server of an agent may be late on a busy machine
		n, err = f.Goroutines(ctx)
		return err
	}).Should(Succeed())
	return n
}
