package faults

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// replica is a `svc apiserver`, which can be stopped and killed, and started again.
type replica struct {
	*launch.Process
	// config is that of an administrator.
	config *rest.Config
	args   []string
}

// newReplica starts a replica on an etcd.
func newReplica(t *testing.T, etcdURL string, flags ...string) *replica {
	t.Helper()
	g := NewWithT(t)
	dir := tempDir(t)
	tokens := filepath.Join(dir, "tokens.csv")
	g.Expect(os.WriteFile(tokens, []byte("secret,admin,1,system:masters\n"), 0o600)).To(Succeed())
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	r := &replica{
		config: &rest.Config{Host: "https://127.0.0.1:" + port, BearerToken: "secret", QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		args: append([]string{
			"apiserver", "--etcd-servers=" + etcdURL, "--bind-address=127.0.0.1", "--secure-port=" + port,
			"--cert-dir=" + filepath.Join(dir, "certs"), "--token-auth-file=" + tokens}, flags...),
	}
	r.start(t)
	t.Cleanup(func() { r.Kill() })
	return r
}

// start starts the replica's process and waits until it is ready.
func (r *replica) start(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	binary, err := launch.Binary()
	g.Expect(err).NotTo(HaveOccurred())
	r.Process, err = launch.Start(nil, binary, r.args...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() int { return status(r.config, "/readyz") }).Should(Equal(http.StatusOK), r.Output)
}

// apiserver starts `svc apiserver` on an etcd and returns an administrator's
// configuration for it. It must end in order.
func apiserver(t *testing.T, e *etcd, flags ...string) *rest.Config {
	t.Helper()
	r := newReplica(t, e.URL(), flags...)
	t.Cleanup(func() {
		g := NewWithT(t)
		code, err := r.Stop(launch.Patience)
		g.Expect(err).NotTo(HaveOccurred(), r.Output())
		g.Expect(code).To(BeZero(), r.Output())
	})
	return r.config
}

func TestTwoServersNeverGiveOneAddressTwice(t *testing.T) {
	g := NewWithT(t)
	e := newEtcd(t)
	// A range of 62 addresses, so that the servers run into each other.
	flag := "--service-cluster-ip-range=10.9.8.0/26"
	clients := []kubernetes.Interface{clientOf(t, apiserver(t, e, flag)), clientOf(t, apiserver(t, e, flag))}

	var (
		mu   sync.Mutex
		held = map[string]string{}
	)
	claim := func(what, by string) {
		mu.Lock()
		defer mu.Unlock()
		if other, taken := held[what]; taken {
			t.Errorf("%s was given to %s and to %s", what, other, by)
		}
		held[what] = by
	}
	var wg sync.WaitGroup
	for i := range 20 {
		for n, client := range clients {
			wg.Go(func() {
				name := fmt.Sprintf("s%d-%d", n, i)
				service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				claim(service.Spec.ClusterIP, name)
				claim(fmt.Sprint("port ", service.Spec.Ports[0].NodePort), name)
			})
		}
	}
	wg.Wait()
	g.Expect(held).To(HaveLen(80))

	// The other server may allocate again what one server has released.
	g.Expect(clients[0].CoreV1().Services("default").Delete(t.Context(), "s1-3", metav1.DeleteOptions{})).To(Succeed())
	list, err := clients[1].CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	for _, service := range list.Items {
		g.Expect(service.Name).NotTo(Equal("s1-3"))
	}
	// Until the range is exhausted, which the error says.
	for i := 0; ; i++ {
		_, err := clients[i%2].CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("more-", i)},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil {
			g.Expect(err).To(MatchError(ContainSubstring("range is full")))
			break
		}
		g.Expect(i).To(BeNumerically("<", 62), "the range has no more addresses")
	}
}

// portOf is the port that a configuration names.
func portOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	u, err := url.Parse(config.Host)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return u.Port()
}
