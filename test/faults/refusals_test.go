package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers"
	"svc.dev/svc/test/launch"
)

// certificate is a client certificate that the server's authority has signed,
// and its key, in PEM.
func certificate(t *testing.T, server *launch.Server, user string, end time.Time) (cert, key []byte) {
	t.Helper()
	g := NewWithT(t)
	authority, err := tls.LoadX509KeyPair(filepath.Join(server.DataDir, "pki", "ca.crt"), filepath.Join(server.DataDir, "pki", "ca.key"))
	g.Expect(err).NotTo(HaveOccurred())
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user},
		NotBefore: end.Add(-time.Hour), NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, private.Public(), authority.PrivateKey)
	g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.MarshalECPrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// connectionOf writes a connection file.
func connectionOf(t *testing.T, server string, authority, cert, key []byte) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	file := filepath.Join(tempDir(t), "svcconfig")
	NewWithT(t).Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	return file
}

func TestManagersWithInvalidCredentialsReportTheReason(t *testing.T) {
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"))
	other := up(t, filepath.Join(tempDir(t), "data"))
	authority, err := os.ReadFile(filepath.Join(server.DataDir, "pki", "ca.crt"))
	g.Expect(err).NotTo(HaveOccurred())
	manager, err := clientcmd.BuildConfigFromFlags("", connection(other))
	g.Expect(err).NotTo(HaveOccurred())
	host := server.Config.Host
	end := time.Now().Add(-time.Minute)
	expired, expiredKey := certificate(t, server, controllers.User, end)
	stranger, strangerKey := certificate(t, server, "stranger", time.Now().Add(time.Hour))
	for _, tc := range []struct {
		rule, file, want string
		flags            []string
	}{
		{"a server of another cluster", connectionOf(t, host, manager.CAData, manager.CertData, manager.KeyData), "the certificate of " + host + " is not trusted: ", nil},
		{"a user of another cluster", connectionOf(t, host, authority, manager.CertData, manager.KeyData), "rejects the credentials: the certificate or token belongs to another cluster, or is no longer valid", nil},
		{"an expired certificate", connectionOf(t, host, authority, expired, expiredKey), "the client certificate expired on " + end.UTC().Format(time.RFC3339), nil},
		{"a user without permissions", connectionOf(t, host, authority, stranger, strangerKey), `the user lacks the permissions of system:svc-controller-manager: leases.coordination.k8s.io "kube-controller-manager" is forbidden: User "stranger" cannot get`, nil},
		{"a port that is in use", connection(server), "--secure-port: " + portOf(t, server.Config) + " is in use", []string{"--secure-port=" + portOf(t, server.Config)}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			g := NewWithT(t)
			code, output := run(t, append([]string{"controller-manager", "--svcconfig=" + tc.file, "--secure-port=0"}, tc.flags...)...)
			g.Expect(code).To(Equal(1), output)
			g.Expect(strings.Count(output, "\n")).To(Equal(1), output)
			g.Expect(output).To(And(HavePrefix("svc controller-manager: "), ContainSubstring(tc.want)))
		})
	}
}

func TestAKindThatIsNotServedStopsOnlyItsControllers(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	server, err := launch.UpAt(t.Context(), dir, port, "--controllers=", "--runtime-config=apps/v1/replicasets=false")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	m := manager(t, connection(server))
	says(t, m, works, 1)
	g.Eventually(m.Output).Should(MatchRegexp(`Controller is not started, the API server does not serve all kinds that it reads.* controller="replicaset" kinds=\["ReplicaSet.apps"\]`))
	expectWork(t, clientOf(t, server.Config))
	server.Kill()

	server = upAt(t, dir, port)
	says(t, m, `"Started controller, its kinds are served now" controller="replicaset"`, 1)
	expectReplicas(t, clientOf(t, server.Config), "web")
	g.Expect(strings.Count(m.Output(), `Controller is not started, the API server does not serve all kinds that it reads" logger="`)).To(BeZero())
}

func TestAMissingPermissionStopsOnlyItsControllers(t *testing.T) {
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"))
	client := clientOf(t, server.Config)
	m := manager(t, forbidding(t, server, "/apis/apps/v1/replicasets"), "--controllers=*,-garbagecollector")
	says(t, m, works, 1)
	says(t, m, "Failed to list or watch kind, permission denied", 1)
	g.Expect(m.Output()).To(MatchRegexp(`Failed to list or watch kind, permission denied.* controllers=\[.*"replicaset"`))
	expectWork(t, client)
	_, err := client.CoreV1().ReplicationControllers("default").Create(t.Context(), &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec:       corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "rc"}, Template: ptr.To(template("rc"))},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(pods(t, client, "rc")).Should(Equal(1))
	g.Expect(strings.Count(m.Output(), "Failed to list or watch kind, permission denied")).To(Equal(1), m.Output())
}

// forbidding is a connection to the server on which a path is forbidden.
func forbidding(t *testing.T, server *launch.Server, path string) string {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.BuildConfigFromFlags("", connection(server))
	g.Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	target, err := url.Parse(config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
	}
	near := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is forbidden by the test","reason":"Forbidden","code":403}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	near.EnableHTTP2 = true
	near.StartTLS()
	t.Cleanup(func() {
		near.CloseClientConnections()
		near.Close()
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: near.Certificate().Raw})
	return connectionOf(t, near.URL, authority, nil, nil)
}

// expectReplicas creates a replica set, and waits for its pod.
func expectReplicas(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	g := NewWithT(t)
	_, err := client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name)},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(pods(t, client, name)).Should(Equal(1))
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
}

func pods(t *testing.T, client kubernetes.Interface, app string) func() int {
	return func() int {
		list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return -1
		}
		return len(list.Items)
	}
}

func TestEndpointsOfAManagerNeedAuthorization(t *testing.T) {
	g := NewWithT(t)
	server := up(t, filepath.Join(tempDir(t), "data"))
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	m := manager(t, connection(server), "--secure-port="+port)
	says(t, m, works, 1)
	at := func(user *rest.Config) *rest.Config {
		config := rest.CopyConfig(user)
		config.Host = "https://127.0.0.1:" + port
		config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile, config.TLSClientConfig.Insecure = nil, "", true
		return config
	}
	cert, key := certificate(t, server, "user", time.Now().Add(time.Hour))
	users := map[string]*rest.Config{
		"administrator": at(server.Config),
		"user":          at(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}),
		"anonymous":     at(&rest.Config{}),
		"robot":         at(&rest.Config{BearerToken: "no such token"}),
	}
	for path, want := range map[string]map[string]int{
		"/healthz":      {"administrator": 200, "user": 200, "anonymous": 200},
		"/livez":        {"administrator": 200, "user": 200, "anonymous": 200},
		"/readyz":       {"administrator": 200, "user": 200, "anonymous": 200},
		"/metrics":      {"administrator": 200, "user": 403, "anonymous": 403, "robot": 401},
		"/metrics/slis": {"administrator": 200, "user": 403, "anonymous": 403},
		"/debug/pprof/": {"administrator": 200, "user": 403, "anonymous": 403},
		"/configz":      {"administrator": 404, "anonymous": 403},
	} {
		for user, code := range want {
			g.Eventually(func() int { return status(users[user], path) }).Should(Equal(code), "%s for %s", path, user)
		}
	}
	var metrics string
	for _, want := range []string{
		`leader_election_master_status{name="kube-controller-manager"} 1`, "controller_runtime_reconcile_total{", "workqueue_depth{", "rest_client_requests_total{", "process_resident_memory_bytes",
	} {
		g.Eventually(func() string {
			_, metrics = get(users["administrator"], "/metrics")
			return metrics
		}).Should(ContainSubstring(want))
	}
	g.Expect(strings.Count(metrics, "# TYPE go_goroutines ")).To(Equal(1))
}

func TestSVCUpShowsTheControllersMetrics(t *testing.T) {
	g := NewWithT(t)
	server, err := launch.Up(t.Context(), filepath.Join(tempDir(t), "data"))
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(server.Kill)
	g.Eventually(func() string {
		_, metrics := get(server.Config, "/metrics")
		return metrics
	}).Should(And(ContainSubstring("controller_runtime_active_workers{"), ContainSubstring("apiserver_request_total{"),
		ContainSubstring(`leader_election_master_status{name="kube-controller-manager"} 1`)))
	g.Eventually(server.Output).Should(MatchRegexp(`(?m)^  controllers +\d+ ms  \d+ of them$`))
}
