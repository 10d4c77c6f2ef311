package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// TestAStoppingServerReportsItAndASecondSignalKillsIt gives the server a long
// delay, during which it serves and is not ready.
func TestAStoppingServerReportsItAndASecondSignalKillsIt(t *testing.T) {
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"), "--shutdown-delay-duration=1h")
	g.Expect(server.Signal(syscall.SIGTERM)).To(Succeed())
	g.Eventually(func() int { return status(server.Config, "/readyz") }).Should(Equal(http.StatusInternalServerError), server.Output)
	g.Eventually(func() int { return status(server.Config, "/livez") }).Should(Equal(http.StatusOK))
	g.Expect(status(server.Config, "/api/v1/namespaces/default")).To(Equal(http.StatusOK))

	// Signals in quick succession count as one, so it is sent until it has an effect.
	g.Eventually(func() <-chan struct{} {
		_ = server.Signal(syscall.SIGTERM) // an error says that it has ended
		return server.Exited()
	}).Should(BeClosed())
	code, err := server.Wait(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).NotTo(BeZero(), server.Output())
}

// TestAStoppingServerLeavesTheEndpointsWhileItServes gives the server a long delay, during which
// clients have to go to other servers.
func TestAStoppingServerLeavesTheEndpointsWhileItServes(t *testing.T) {
	g := NewWithT(t)
	server := newReplica(t, newEtcd(t).URL(), "--shutdown-delay-duration=1h", "--advertise-address=192.0.2.1")
	api := clientOf(t, server.config)
	addresses := func() ([]discoveryv1.Endpoint, error) {
		slice, err := api.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return slice.Endpoints, client.IgnoreNotFound(err)
	}
	g.Expect(addresses()).To(HaveLen(1))
	g.Expect(server.Signal(syscall.SIGTERM)).To(Succeed())
	g.Eventually(addresses).Should(BeEmpty(), server.Output)
	g.Expect(status(server.config, "/livez")).To(Equal(http.StatusOK))
}

// TestAStopRightAfterTheStartLogsNoErrors stops a server whose controllers are still
// starting.
func TestAStopRightAfterTheStartLogsNoErrors(t *testing.T) {
	g := NewWithT(t)
	server, err := launch.Up(t.Context(), filepath.Join(tempDir(t), "data"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	code, err := server.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(BeZero())
	_, after, found := strings.Cut(server.Output(), "Ctrl-C stops it.")
	g.Expect(found).To(BeTrue(), server.Output())
	g.Expect(strings.Count(after, "\n")).To(Equal(1), server.Output())
}

// TestADamagedDatabaseIsReportedOrRecovered damages the database of a server that has
// stopped. Either the write-ahead log suffices to recover it, or the start fails. The
// server must not start with only some of its objects.
func TestADamagedDatabaseIsReportedOrRecovered(t *testing.T) {
	const objects = 50
	for _, damage := range []struct {
		rule string
		do   func(path string) error
	}{
		{"removed", os.Remove},
		{"emptied", func(path string) error { return os.Truncate(path, 0) }},
		{"cut after its first pages", func(path string) error { return os.Truncate(path, 16<<10) }},
		{"overwritten", func(path string) error { return os.WriteFile(path, make([]byte, 64<<10), 0o600) }},
	} {
		t.Run(damage.rule, func(t *testing.T) {
			g := NewWithT(t)
			dir := filepath.Join(tempDir(t), "data")
			server := up(t, dir)
			maps := clientOf(t, server.Config).CoreV1().ConfigMaps("default")
			for i := range objects {
				_, err := maps.Create(t.Context(), configMap(fmt.Sprint("c", i), "1"), metav1.CreateOptions{})
				g.Expect(err).NotTo(HaveOccurred())
			}
			_, err := server.Stop(launch.Patience)
			g.Expect(err).NotTo(HaveOccurred())
			found, err := filepath.Glob(filepath.Join(dir, "*", "member", "snap", "db"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveLen(1))
			g.Expect(damage.do(found[0])).To(Succeed())

			again, err := launch.Up(t.Context(), dir)
			if err != nil {
				g.Expect(err.Error()).To(And(ContainSubstring("it ended before it was ready"), ContainSubstring(dir), MatchRegexp("corrupt|damaged|missing")))
				g.Expect(err.Error()).NotTo(ContainSubstring("goroutine "), "a message, not a trace")
				return
			}
			t.Cleanup(again.Kill)
			list, err := clientOf(t, again.Config).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(list.Items)).To(BeNumerically(">=", objects))
		})
	}
}
