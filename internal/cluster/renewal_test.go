package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/test/launch"
)

// TestMain registers the feature gates, as svc does, and lets clients of client-go
// notice renewed certificates sooner than after five minutes.
func TestMain(m *testing.M) {
	transport.CertCallbackRefreshDuration = 100 * time.Millisecond
	if err := gates.Set(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const day = 24 * time.Hour

// The names of the cluster's certificates.
var (
	authorities = []string{"ca", "front-proxy-ca"}
	leaves      = []string{"apiserver", "apiserver-kubelet-client", "admin", "controller-manager", "svc-up", "front-proxy-client"}
)

// TestCertificatesAreRenewedWithoutADroppedRequest renews all certificates of a cluster
// by its clock, while users, watches, the aggregator and a stream of an agent are busy.
func TestCertificatesAreRenewedWithoutADroppedRequest(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	c, clock := startOld(t)
	first := map[string]*x509.Certificate{}
	for _, name := range append(authorities, leaves...) {
		first[name] = c.certificate(t, name)
	}
	agent := c.serve(t, "ca")
	extension := c.serve(t, "front-proxy-ca")
	c.register(t, agent, extension)

	load := newLoad(t)
	load.repeat("a client that keeps its connection", c.write(c.admin(t)))
	load.repeat("a client with a new connection for each request", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", c.dir.AdminFile())
		if err != nil {
			return err
		}
		config.Dial = (&net.Dialer{}).DialContext // client-go shares no connection of a config with a dialer
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		defer utilnet.CloseIdleConnectionsFor(client.RESTClient().(*rest.RESTClient).Client.Transport)
		return client.RESTClient().Get().AbsPath("/api/v1/namespaces").Do(ctx).Error()
	})
	client := c.admin(t)
	load.repeat("the aggregator", func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/apis/renewal.example.com/v1").Do(ctx).Error()
	})
	load.repeat("requests to an agent", func(ctx context.Context) error {
		return client.RESTClient().Get().AbsPath("/api/v1/nodes/agent/proxy/once").Do(ctx).Error()
	})
	load.stream("a stream of an agent", c.admin(t), "/api/v1/nodes/agent/proxy/stream")
	load.stream("a watch", c.admin(t), "/api/v1/namespaces/default/configmaps?watch=true")
	g.Eventually(load.busy).Should(gomega.BeTrue())

	clock.Step(276 * day)
	for _, name := range append(authorities, leaves...) {
		g.Eventually(func() *big.Int {
			clock.Step(time.Minute)
			return c.certificate(t, name).SerialNumber
		}).ShouldNot(gomega.Equal(first[name].SerialNumber), name)
	}
	g.Eventually(c.served).WithArguments(t).Should(gomega.Equal(c.certificate(t, "apiserver").SerialNumber), "the serving certificate")
	g.Eventually(agent.client.Load).Should(gomega.Equal(c.certificate(t, "apiserver-kubelet-client").SerialNumber.String()), "to agents")
	g.Eventually(extension.client.Load).Should(gomega.Equal(c.certificate(t, "front-proxy-client").SerialNumber.String()), "the aggregator's")
	load.restart()
	g.Eventually(load.busy).Should(gomega.BeTrue(), "with the new certificates")
	load.stop()

	// The controllers work with theirs.
	if _, err := c.admin(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(func() error {
		_, err := c.admin(t).CoreV1().ServiceAccounts("later").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}).Should(gomega.Succeed())
}

// running is a cluster that a test has started.
type running struct {
	dir datadir.Dir
	url string
}

// startOld starts a cluster whose clock is 277 days slow, so that its certificates are
// to be renewed when the clock is right. Its authorities are old enough to be, too.
func startOld(t *testing.T) (*running, *clocktesting.FakeClock) {
	t.Helper()
	dir := newDir(t)
	old := clocktesting.NewFakeClock(time.Now().Add(-8*365*day - 100*day))
	if _, err := pki.Open(pki.Config{Dir: dir.PKI(), Clock: old}); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now().Add(-277 * day))

	cluster := configured(t, dir, clock)
	start(t, cluster.components(), clock)
	return &running{dir: dir, url: serverURL(cluster.Server)}, clock
}

// configured returns a cluster without a node, at a free port of 127.0.0.1.
func configured(t *testing.T, dir datadir.Dir, clock clock.WithTicker) *Cluster {
	t.Helper()
	port, err := launch.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	server := options.New()
	server.Authorization.Modes = []string{authorization.Node, authorization.RBAC}
	server.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	if server.SecureServing.BindPort, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	managed := controllers.NewOptions()
	managed.AddFlags(&cliflag.NamedFlagSets{})
	node := NewNodeOptions()
	node.Mode = NodeNever
	cluster, err := New(Config{Dir: dir, Server: server, Controllers: managed, Node: node, EmbeddedEtcd: true, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// start starts components, which stop after the test.
func start(t *testing.T, components []component.Component, clock clock.WithTicker) {
	t.Helper()
	group := &component.Group{Components: components, Program: "svc up", Progress: io.Discard, StopTimeout: stopTimeout, Clock: clock}
	t.Cleanup(func() {
		if err := group.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := group.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// newDir returns a data directory, which is removed after the test.
func newDir(t *testing.T) datadir.Dir {
	t.Helper()
	parent, err := os.MkdirTemp("", "svc") // a short path for etcd's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := datadir.Dir(filepath.Join(parent, "data"))
	lock, err := dir.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	return dir
}

func (r *running) file(name string) string { return filepath.Join(r.dir.PKI(), name) }

func (r *running) certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	certs, err := cert.CertsFromFile(r.file(name + ".crt"))
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

// admin returns a client with the present certificate of the administrator.
func (r *running) admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.dir.AdminFile())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// served is the serial number of the certificate that a new connection gets.
func (r *running) served(t *testing.T) *big.Int {
	t.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

// write creates and deletes an object.
func (r *running) write(client *kubernetes.Clientset) func(context.Context) error {
	return func(ctx context.Context) error {
		made, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "renewal-"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return client.CoreV1().ConfigMaps("default").Delete(ctx, made.Name, metav1.DeleteOptions{})
	}
}

// backend is an HTTPS server to which the API server connects with a client certificate.
type backend struct {
	address netip.AddrPort
	// client is the serial number of the certificate of the newest request.
	client atomic.Value
}

// serve starts a backend that requires a client certificate of an authority, and whose
// own is signed by the cluster's.
func (r *running) serve(t *testing.T, authority string) *backend {
	t.Helper()
	b := &backend{}
	b.client.Store("")
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, req *http.Request) {
		for {
			if _, err := io.WriteString(w, "line\n"); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		b.client.Store(req.TLS.PeerCertificates[0].SerialNumber.String())
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"renewal.example.com/v1","resources":[]}`)
	})
	s := httptest.NewUnstartedServer(mux)
	clients := x509.NewCertPool()
	clients.AddCert(r.certificate(t, authority))
	a, err := launch.ReadAuthority(r.file("ca.crt"), r.file("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := a.Server(dir, "own", "backend", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "own.crt"), filepath.Join(dir, "own.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	b.address = netip.MustParseAddrPort(s.Listener.Addr().String())
	return b
}

// register makes the backends a node's agent and an aggregated API.
func (r *running) register(t *testing.T, agent, extension *backend) {
	t.Helper()
	client := r.admin(t)
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: agent.address.Addr().String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(agent.address.Port())
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services": `{"metadata":{"name":"extension"},"spec":{"type":"ExternalName","externalName":"localhost"}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.renewal.example.com"},
			"spec":{"group":"renewal.example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,"insecureSkipTLSVerify":true,
			"service":{"namespace":"default","name":"extension","port":%d}}}`, extension.address.Port()),
	} {
		if err := client.RESTClient().Post().AbsPath(path).Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	gomega.NewWithT(t).Eventually(func() error {
		return client.RESTClient().Get().AbsPath("/apis/renewal.example.com/v1").Do(t.Context()).Error()
	}).WithTimeout(time.Minute).Should(gomega.Succeed())
}

// load makes requests until it is stopped. None may fail.
type load struct {
	t       *testing.T
	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	mu      sync.Mutex
	done    map[string]int // by the name of the request
}

func newLoad(t *testing.T) *load {
	l := &load{t: t, done: map[string]int{}}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(l.stop)
	return l
}

// repeat makes a request again and again.
func (l *load) repeat(name string, request func(context.Context) error) {
	l.count(name, 0)
	l.running.Go(func() {
		for l.ctx.Err() == nil {
			if err := request(l.ctx); err != nil {
				if l.ctx.Err() == nil {
					l.t.Errorf("%s: %v", name, err)
				}
				return
			}
			l.count(name, 1)
		}
	})
}

// stream reads a response that does not end before the load does.
func (l *load) stream(name string, client *kubernetes.Clientset, uri string) {
	l.count(name, 0)
	l.running.Go(func() {
		body, err := client.RESTClient().Get().RequestURI(uri).Stream(l.ctx)
		if err != nil {
			l.t.Errorf("%s: %v", name, err)
			return
		}
		defer body.Close()
		for lines := bufio.NewReader(body); ; {
			if _, err := lines.ReadString('\n'); err != nil {
				if l.ctx.Err() == nil {
					l.t.Errorf("%s ended: %v", name, err)
				}
				return
			}
			l.count(name, 1)
		}
	})
}

func (l *load) count(name string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[name] += n
}

// busy reports whether each kind of request has succeeded several times since the start
// or the last restart of the counters.
func (l *load) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.done {
		if n < 5 {
			return false
		}
	}
	return true
}

// restart sets the counters to zero.
func (l *load) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.done {
		l.done[name] = 0
	}
}

// stop ends the requests, and waits for them.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}
