package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"svc.dev/svc/test/launch"
)

// aLongLease outlasts all waits of a test: other managers do not acquire it, and the
// holder still has it after its server was unavailable.
var aLongLease = []string{"--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=30m"}

// What managers log.
const (
	holds = "Acquired lease"
	works = "Started controllers"
	stops = "Stopping controllers"
)

// manager starts a manager without waiting for it. It ends with the test at the
// latest.
func manager(t *testing.T, connection string, flags ...string) *launch.Process {
	t.Helper()
	g := NewWithT(t)
	binary, err := launch.Binary()
	g.Expect(err).NotTo(HaveOccurred())
	process, err := launch.Start(nil, binary, append([]string{
		"controller-manager", "--svcconfig=" + connection, "--secure-port=0", "-v=2", "--leader-elect-retry-period=200ms"}, flags...)...)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("a manager's log:\n%s", process.Output())
		}
	})
	return process
}

// connection is the file of the managers' user.
func connection(server *launch.Server) string {
	return filepath.Join(server.DataDir, "controller-manager.svcconfig")
}

// says waits until a process has written a text n times.
func says(t *testing.T, p *launch.Process, text string, n int) {
	t.Helper()
	NewWithT(t).Eventually(func() int { return strings.Count(p.Output(), text) }).Should(BeNumerically(">=", n), "%q in %s", text, p.Output)
}

// when is the time in the log of the line that has a text, as klog writes it.
func when(t *testing.T, p *launch.Process, text string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^[IWE](\d{4} [\d:.]+) .*` + regexp.QuoteMeta(text)).FindStringSubmatch(p.Output())
	NewWithT(t).Expect(found).To(HaveLen(2), "%q in %s", text, p.Output())
	return found[1]
}

// expectWork creates a namespace with something in it, deletes it, and waits
// until some manager has let it go.
func expectWork(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	g := NewWithT(t)
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "work-"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = client.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), configMap("content", ""), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
		return err
	}).Should(Satisfy(apierrors.IsNotFound))
}

func TestAnotherManagerTakesOver(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"))
	client := clientOf(t, server.Config)
	first := manager(t, connection(server))
	says(t, first, works, 1)
	second := manager(t, connection(server))
	says(t, second, "held by", 1)
	expectWork(t, client)
	g.Expect(second.Output()).NotTo(ContainSubstring(holds), "two hold the lease")

	killed := time.Now()
	first.Kill()
	says(t, second, works, 1)
	g.Expect(time.Since(killed)).To(BeNumerically(">", 2*time.Second), "the lease of one that was killed was not waited for")
	expectWork(t, client)

	third := manager(t, connection(server))
	says(t, third, "held by", 1)
	stopped := time.Now()
	code, err := second.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(BeZero(), second.Output())
	says(t, third, works, 1)
	t.Logf("handed over in %s", time.Since(stopped))
	g.Expect(when(t, third, holds) > when(t, second, "Wait completed")).To(BeTrue(), "the third began before the second had stopped")
	expectWork(t, client)
}

// TestASuspendedLeaderStopsItsControllers suspends a leader, as a machine that sleeps,
// for longer than its lease.
func TestASuspendedLeaderStopsItsControllers(t *testing.T) {
	t.Parallel()
	server := up(t, filepath.Join(tempDir(t), "data"))
	client := clientOf(t, server.Config)
	first := manager(t, connection(server))
	says(t, first, works, 1)
	second := manager(t, connection(server))
	says(t, second, "held by", 1)

	g := NewWithT(t)
	g.Expect(first.Signal(syscall.SIGSTOP)).To(Succeed())
	says(t, second, works, 1)
	expectWork(t, client)
	g.Expect(first.Signal(syscall.SIGCONT)).To(Succeed())
	says(t, first, stops, 1)
	says(t, first, "held by", 1)
	expectWork(t, client)
	g.Expect(second.Output()).NotTo(ContainSubstring(stops), "the lease was taken from the second")

	second.Kill()
	says(t, first, works, 2)
	expectWork(t, client)
}

// TestALeaderWithoutConnectionStopsInTime holds back what a leader and the server
// say to each other.
func TestALeaderWithoutConnectionStopsInTime(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"))
	client := clientOf(t, server.Config)
	wire := newWire(t, strings.TrimPrefix(server.Config.Host, "https://"))
	// On a busy machine a manager may be late, too, but not for as long as between the two.
	lease := []string{"--leader-elect-renew-deadline=10s", "--leader-elect-lease-duration=30s"}
	first := manager(t, wire.connection(t, server), lease...)
	says(t, first, works, 1)
	second := manager(t, connection(server), lease...)
	says(t, second, "held by", 1)

	wire.hold()
	says(t, second, works, 1)
	says(t, first, stops, 1)
	g.Expect(when(t, first, stops) < when(t, second, holds)).To(BeTrue(), "the second began before the first had stopped")
	expectWork(t, client)
	wire.release()
	says(t, first, "held by", 1)
	g.Expect(second.Output()).NotTo(ContainSubstring(stops), "the lease was taken from the second")
	expectWork(t, client)
}

func TestSVCUpAcquiresItsLeaseAtOnce(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	for range 2 {
		server, err := launch.Up(t.Context(), dir, aLongLease...)
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(server.Kill)
		expectWork(t, clientOf(t, server.Config))
		server.Kill()
	}
}

// TestManagersRetryWhileTheServerIsUnavailable stops the server for shorter and for
// longer than a term.
func TestManagersRetryWhileTheServerIsUnavailable(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	m := manager(t, filepath.Join(dir, "controller-manager.svcconfig"))
	code, err := m.Wait(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(Equal(1), "without a file")

	server := upAt(t, dir, port)
	server.Kill()
	m = manager(t, connection(server))
	says(t, m, "Waiting for the API server", 2)
	server = upAt(t, dir, port)
	says(t, m, works, 1)
	expectWork(t, clientOf(t, server.Config))

	server.Kill()
	server = upAt(t, dir, port)
	expectWork(t, clientOf(t, server.Config))

	server.Kill()
	says(t, m, stops, 1)
	server = upAt(t, dir, port)
	says(t, m, works, 2)
	expectWork(t, clientOf(t, server.Config))
	code, err = m.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(BeZero(), m.Output())
}

// TestARestoredSnapshotRestartsTheControllers restores etcd to an earlier state while a
// manager runs.
func TestARestoredSnapshotRestartsTheControllers(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	server := upAt(t, dir, port)
	client := clientOf(t, server.Config)
	m := manager(t, connection(server), aLongLease...)
	says(t, m, works, 1)
	owned(t, client, "kept")
	_, err = server.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred())
	saved := filepath.Join(filepath.Dir(dir), "saved")
	g.Expect(os.CopyFS(saved, os.DirFS(filepath.Join(dir, "etcd")))).To(Succeed())

	server = upAt(t, dir, port)
	client = clientOf(t, server.Config)
	g.Expect(client.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(existing(t, client)).Should(BeEmpty(), "the owner's dependents")
	owned(t, client, "later")
	expectWork(t, client)
	server.Kill()
	g.Expect(os.RemoveAll(filepath.Join(dir, "etcd"))).To(Succeed())
	g.Expect(os.CopyFS(filepath.Join(dir, "etcd"), os.DirFS(saved))).To(Succeed())

	server = upAt(t, dir, port)
	client = clientOf(t, server.Config)
	says(t, m, "gone back to an earlier state", 1)
	says(t, m, works, 2)
	g.Consistently(existing(t, client), "3s").Should(Equal("kept kept-child-0 kept-child-1 kept-child-2"))
	expectWork(t, client)
	g.Expect(client.CoreV1().ConfigMaps("default").Delete(t.Context(), "kept", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(existing(t, client)).Should(BeEmpty(), "the owner's dependents")
}

// owned creates an object and its dependents.
func owned(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	g := NewWithT(t)
	labels := map[string]string{"owned": "true"}
	owner := configMap(name, "")
	owner.Labels = labels
	owner, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), owner, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for i := range 3 {
		child := configMap(fmt.Sprintf("%s-child-%d", name, i), "")
		child.Labels = labels
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID, Controller: ptr.To(true)}}
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), child, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// existing returns the names of those objects of owned that exist.
func existing(t *testing.T, client kubernetes.Interface) func() string {
	return func() string {
		list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "owned=true"})
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, cm := range list.Items {
			names = append(names, cm.Name)
		}
		return strings.Join(names, " ")
	}
}

// upAt is up on a given port.
func upAt(t *testing.T, dataDir, port string, flags ...string) *launch.Server {
	t.Helper()
	server, err := launch.UpAt(t.Context(), dataDir, port, append([]string{"--controllers="}, flags...)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	return server
}

// connection is the file of the managers' user, by way of the wire.
func (w *wire) connection(t *testing.T, server *launch.Server) string {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(connection(server))
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(tempDir(t), "svcconfig")
	g.Expect(os.WriteFile(file, []byte(strings.ReplaceAll(string(content), server.Config.Host, "https://"+w.address)), 0o600)).To(Succeed())
	return file
}
