package faults

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/server/v3/embed"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

const (
	etcdDirVariable  = "FAULTS_ETCD_DIR"
	etcdPortVariable = "FAULTS_ETCD_PORT"
)

// etcd is an etcd in a process of its own, which can be stopped and killed.
type etcd struct {
	*launch.Process
	dir, port string
}

// URL is the client address.
func (e *etcd) URL() string { return "http://127.0.0.1:" + e.port }

// startEtcd starts this test binary as an etcd (TestMain calls runEtcd).
func startEtcd(t *testing.T, dir, port string) *etcd {
	t.Helper()
	g := NewWithT(t)
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	e := &etcd{dir: dir, port: port}
	e.Process, err = launch.Start([]string{etcdDirVariable + "=" + dir, etcdPortVariable + "=" + port}, self)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(e.Kill)
	g.Eventually(func() (int, error) {
		resp, err := http.Get(e.URL() + "/health")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}).Should(Equal(http.StatusOK), e.Output)
	return e
}

// newEtcd starts an etcd on a free port.
func newEtcd(t *testing.T) *etcd {
	t.Helper()
	port, err := launch.FreePort()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return startEtcd(t, filepath.Join(tempDir(t), "etcd"), port)
}

// runEtcd is an etcd of one member that serves until the process is killed.
func runEtcd(dir, port string) {
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	client := url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // no peer will call
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	e, err := embed.StartEtcd(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, <-e.Err())
	os.Exit(1)
}

// TestServerRecoversFromUnavailableEtcd makes etcd unavailable in two ways: its process
// hangs, so that connections stay open without responses, and it is killed, so that
// connections are refused.
func TestServerRecoversFromUnavailableEtcd(t *testing.T) {
	t.Parallel()
	for _, manner := range []struct {
		name       string
		away, back func(t *testing.T, e *etcd)
	}{
		{"hanging", func(t *testing.T, e *etcd) {
			NewWithT(t).Expect(e.Signal(syscall.SIGSTOP)).To(Succeed())
		}, func(t *testing.T, e *etcd) {
			NewWithT(t).Expect(e.Signal(syscall.SIGCONT)).To(Succeed())
		}},
		{"killed", func(_ *testing.T, e *etcd) { e.Kill() }, func(t *testing.T, e *etcd) {
			e.Process = startEtcd(t, e.dir, e.port).Process
		}},
	} {
		t.Run(manner.name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			e := newEtcd(t)
			server := up(t, filepath.Join(tempDir(t), "data"), "--etcd-servers="+e.URL())
			config := rest.CopyConfig(server.Config)
			config.Timeout = time.Minute // a watch, too, ends then
			client := clientOf(t, config)
			maps := client.CoreV1().ConfigMaps("default")
			_, err := maps.Create(t.Context(), configMap("before", "1"), metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())

			manner.away(t, e)
			g.Eventually(func() int { return status(config, "/readyz") }).Should(Equal(http.StatusInternalServerError))
			_, health := get(config, "/readyz")
			g.Expect(health).To(ContainSubstring("[-]etcd failed"))
			g.Consistently(func() int { return status(config, "/livez") }, "3s", "200ms").Should(Equal(http.StatusOK))

			// A request fails within the client's timeout, with the reason.
			code, body := get(config, "/api/v1/namespaces/default/configmaps/before?timeout=3s")
			g.Expect(code).To(BeElementOf(http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout), body)
			g.Expect(body).To(And(ContainSubstring(`"kind":"Status"`), MatchRegexp(`etcd.* did not answer in time|etcd does not answer`)))

			manner.back(t, e)
			g.Eventually(func() int { return status(config, "/readyz") }).Should(Equal(http.StatusOK))
			g.Eventually(func() error {
				_, err := maps.Get(t.Context(), "before", metav1.GetOptions{})
				return err
			}).Should(Succeed())
			g.Eventually(func() error {
				_, err := maps.Create(t.Context(), configMap("after", "1"), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil
				}
				return err
			}).Should(Succeed())
			// Caches have caught up too: a watch delivers what happens now.
			watch, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=after"})
			g.Expect(err).NotTo(HaveOccurred())
			defer watch.Stop()
			g.Eventually(watch.ResultChan()).Should(Receive())
		})
	}
}
