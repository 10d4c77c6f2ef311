package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeAgent is an HTTPS server where the API server expects the agent of a
// node. Specs say what it answers; it believes the API server alone.
type fakeAgent struct {
	*http.ServeMux
	// node is the name of its Node.
	node string

	mu       sync.Mutex
	requests []*http.Request
}

// newFakeAgent creates a node whose agent has a certificate of the cluster's
// authority. It ends with the spec.
func newFakeAgent(ctx context.Context) *fakeAgent {
	GinkgoHelper()
	return newFakeAgentWith(ctx, certificate(clusterAuthority()))
}

// newFakeAgentWith is newFakeAgent with another certificate.
func newFakeAgentWith(ctx context.Context, own tls.Certificate) *fakeAgent {
	GinkgoHelper()
	a := &fakeAgent{ServeMux: http.NewServeMux()}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests = append(a.requests, r)
		a.mu.Unlock()
		a.ServeHTTP(w, r)
	}))
	clients := x509.NewCertPool()
	clients.AddCert(clusterAuthority().Leaf)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refusals are what some specs are about
	s.StartTLS()
	DeferCleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	a.node = makeNode(ctx, netip.MustParseAddrPort(s.Listener.Addr().String()))
	return a
}

// makeNode creates a node whose agent is at an address, until the spec ends.
func makeNode(ctx context.Context, agent netip.AddrPort) string {
	GinkgoHelper()
	nodes := client.CoreV1().Nodes()
	n, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(nodes.Delete(ctx, n.Name, metav1.DeleteOptions{})).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "is gone")))
	})
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: agent.Addr().String()}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(agent.Port())
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return n.Name
}

// last is the request that came last, and nil if there was none.
func (a *fakeAgent) last() *http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.requests) == 0 {
		return nil
	}
	return a.requests[len(a.requests)-1]
}

// pod creates a running pod on the agent's node.
func (a *fakeAgent) pod(ctx context.Context, namespace, name string, containers ...string) *corev1.Pod {
	GinkgoHelper()
	return makePod(ctx, namespace, name, corev1.PodSpec{NodeName: a.node}, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3"}, containers...)
}

// makePod creates a pod, until the spec ends.
func makePod(ctx context.Context, namespace, name string, spec corev1.PodSpec, status corev1.PodStatus, containers ...string) *corev1.Pod {
	GinkgoHelper()
	for _, c := range containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c, Image: "i"})
	}
	pods := client.CoreV1().Pods(namespace)
	p, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		now := int64(0)
		Expect(pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "is gone")))
	})
	p.Status = status
	p, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return p
}

// clusterAuthority is the authority of svc up's certificates.
func clusterAuthority() tls.Certificate {
	GinkgoHelper()
	file := filepath.Join(server.DataDir, "pki", "ca")
	authority, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	Expect(err).NotTo(HaveOccurred())
	return authority
}

// strangeAuthority is an authority that no component trusts.
func strangeAuthority() tls.Certificate {
	GinkgoHelper()
	return issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "strange-ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
}

// certificate is that of an agent on this machine.
func certificate(authority tls.Certificate) tls.Certificate {
	GinkgoHelper()
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	if ip := outerIP(); ip != nil {
		addresses = append(addresses, ip)
	}
	return issue(&x509.Certificate{
		Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:fake"}, IPAddresses: addresses,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &authority)
}

// issue signs a certificate; without an authority, by itself.
func issue(template *x509.Certificate, authority *tls.Certificate) tls.Certificate {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	made, err := tls.X509KeyPair(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	Expect(err).NotTo(HaveOccurred())
	return made
}

// outerIP is an address of this machine that others could have, or nil.
func outerIP() net.IP {
	GinkgoHelper()
	addresses, err := net.InterfaceAddrs()
	Expect(err).NotTo(HaveOccurred())
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP
		}
	}
	return nil
}

// silence is an address that accepts connections and never responds.
func silence() netip.AddrPort {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(io.Discard, conn) // until the other side gives up
				conn.Close()
			})
		}
	})
	DeferCleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}
