package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/fleetaddress"
)

const token = "abcdef.0123456789abcdef"

// apiServer signs the requests for certificates of clients with the token or with a
// certificate that it has signed.
type apiServer struct {
	*httptest.Server
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu        sync.Mutex
	requests  []*certificatesv1.CertificateSigningRequest
	users     []string // who sent each of them
	condition certificatesv1.RequestConditionType
	rejected  map[string]bool // certificates, by serial number
	refuse    int             // how many requests with the token are refused
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{condition: certificatesv1.CertificateApproved, rejected: map[string]bool{}}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	s.cert = s.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, s.key.Public())
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// sign returns a certificate for an hour, unless the template has other dates.
func (s *apiServer) sign(t *testing.T, template *x509.Certificate, public any) *x509.Certificate {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	}
	parent := s.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, s.key)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func (s *apiServer) user(r *http.Request) string {
	if r.Header.Get("Authorization") == "Bearer "+token {
		if s.refuse > 0 {
			s.refuse--
			return ""
		}
		return "token"
	}
	if certs := r.TLS.PeerCertificates; len(certs) > 0 && certs[0].CheckSignatureFrom(s.cert) == nil && !s.rejected[certs[0].SerialNumber.String()] {
		return certs[0].Subject.CommonName
	}
	return ""
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	user := s.user(r)
	s.mu.Unlock()
	answer := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	switch {
	case user == "":
		answer(401, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: 401, Message: "Unauthorized"})
	case r.URL.Path == "/stream":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case !strings.HasPrefix(r.URL.Path, "/apis/certificates.k8s.io/v1/"):
		answer(200, map[string]string{"user": user})
	case r.Method == http.MethodPost:
		csr := &certificatesv1.CertificateSigningRequest{}
		_ = json.NewDecoder(r.Body).Decode(csr)
		s.mu.Lock()
		exists := slices.ContainsFunc(s.requests, func(sent *certificatesv1.CertificateSigningRequest) bool { return sent.Name == csr.Name })
		s.mu.Unlock()
		if exists {
			answer(409, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonAlreadyExists, Code: 409})
			return
		}
		answer(201, s.add(csr, user))
	case r.URL.Query().Get("watch") == "true":
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			answer(422, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422})
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		list := &certificatesv1.CertificateSigningRequestList{TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequestList", APIVersion: "certificates.k8s.io/v1"}}
		for _, csr := range s.requests {
			if strings.HasSuffix(r.URL.Path, "/"+csr.Name) {
				answer(200, csr)
				return
			}
			if strings.HasSuffix(r.URL.Query().Get("fieldSelector"), "="+csr.Name) {
				list.Items = append(list.Items, *csr)
			}
		}
		answer(200, list)
	}
}

// add stores a request with the server's answer to it.
func (s *apiServer) add(csr *certificatesv1.CertificateSigningRequest, user string) *certificatesv1.CertificateSigningRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	csr.TypeMeta = metav1.TypeMeta{Kind: "CertificateSigningRequest", APIVersion: "certificates.k8s.io/v1"}
	if csr.Name == "" {
		csr.Name = csr.GenerateName + string(rune('a'+len(s.requests)))
	}
	csr.UID, csr.ResourceVersion = types.UID(csr.Name), "1"
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: s.condition, Status: corev1.ConditionTrue, Reason: "Test"}}
	if s.condition == certificatesv1.CertificateApproved {
		block, _ := pem.Decode(csr.Spec.Request)
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err == nil {
			template := &x509.Certificate{Subject: parsed.Subject, DNSNames: parsed.DNSNames, IPAddresses: parsed.IPAddresses}
			template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
			template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
			der, _ := x509.CreateCertificate(rand.Reader, template, s.cert, parsed.PublicKey, s.key)
			csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		}
	}
	s.requests, s.users = append(s.requests, csr), append(s.users, user)
	return csr
}

// sent returns the users that have sent requests.
func (s *apiServer) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.users)
}

// kubeconfig writes a kubeconfig of the server's, and returns its path.
func (s *apiServer) kubeconfig(t *testing.T, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	config.AuthInfos["u"] = user
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair writes a client certificate with these dates in a directory, as the store does.
func (s *apiServer) pair(t *testing.T, dir string, from, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := s.sign(t, &x509.Certificate{Subject: subject("a"), NotBefore: from, NotAfter: until}, key.Public())
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "first.pem")
	data := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, clientPair+"-current.pem")); err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) bootstrap(t *testing.T, dir string) Bootstrap {
	t.Helper()
	return Bootstrap{
		Node: "a", File: s.kubeconfig(t, &clientcmdapi.AuthInfo{Token: token}), Dir: dir,
		Connection: filepath.Join(dir, "svcconfig"), Clock: clock.RealClock{},
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestBootstrapWritesAConnectionFileOfTheCurrentPair(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	api, err := clientcmd.BuildConfigFromFlags("", b.Connection)
	if err != nil {
		t.Fatal(err)
	}
	current := filepath.Join(dir, "svclet-client-current.pem")
	if api.CertFile != current || api.KeyFile != current || api.BearerToken != "" {
		t.Errorf("the connection file has certificate %q, key %q, token %q", api.CertFile, api.KeyFile, api.BearerToken)
	}
	if info, err := os.Lstat(current); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the current pair is %v, %v, want a symbolic link", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "svclet-client.key.tmp")); !os.IsNotExist(err) {
		t.Errorf("the key of the request is left: %v", err)
	}
	if err := b.Run(t.Context()); err != nil || len(server.sent()) != 1 {
		t.Errorf("a second start sends %v, %v", server.sent(), err)
	}
}

// The certificate of a machine of a fleet is the host's, but not that of a node of the host.
func TestAMachineOfAFleetAsksTheHost(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	host := server.URL
	server.URL += fleetaddress.Path("fleet.svc.dev", "default")
	b.File = server.kubeconfig(t, &clientcmdapi.AuthInfo{Token: token})
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	api, err := clientcmd.BuildConfigFromFlags("", b.Connection)
	if err != nil || api.Host != server.URL {
		t.Fatalf("the connection file has the server %q, %v, want the fleet's address", api.Host, err)
	}
	client, err := NewClient(ClientOptions{Node: b.Node, API: api, Dir: t.TempDir(), Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	renewal, err := client.client(nil)
	if err != nil || !strings.HasPrefix(renewal.CertificatesV1().RESTClient().Get().URL().String(), host+"/apis/certificates.k8s.io/") {
		t.Errorf("renewals are requested at %s, %v", renewal.CertificatesV1().RESTClient().Get().URL(), err)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	sent := server.requests
	if len(sent) != 1 || sent[0].Spec.SignerName != "kubernetes.io/kube-apiserver-client" {
		t.Fatalf("sent %v", sent)
	}
	block, _ := pem.Decode(sent[0].Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || request.Subject.CommonName != "svc.dev:node:"+b.Node || !slices.Equal(request.Subject.Organization, []string{"svc.dev:nodes"}) {
		t.Errorf("the request is for %s, %v", request.Subject, err)
	}
}

func TestBootstrapReplacesAnExpiredCertificate(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Clock = testclock.NewFakeClock(time.Now().Add(2 * time.Hour))
	if err := b.Run(t.Context()); err != nil || len(server.sent()) != 2 {
		t.Errorf("sent %v, %v", server.sent(), err)
	}
}

// impatient is a clock that waits for nothing, and records how long it should have waited.
type impatient struct {
	clock.RealClock
	waited []time.Duration
}

func (c *impatient) After(d time.Duration) <-chan time.Time {
	c.waited = append(c.waited, d)
	return c.RealClock.After(0)
}

// A server rejects valid tokens for a moment while others guess tokens.
func TestBootstrapOutlastsSomeRejectionsOfItsToken(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.refuse = rejections().Steps
	b := server.bootstrap(t, dir)
	pauses := &impatient{}
	b.Clock = pauses
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(pauses.waited) != rejections().Steps || !slices.IsSorted(pauses.waited) {
		t.Errorf("it waited %v, want %d pauses that grow", pauses.waited, rejections().Steps)
	}
}

func TestBootstrapFailsIfTheTokenOrTheRequestIsRejected(t *testing.T) {
	t.Run("token", func(t *testing.T) {
		server, dir := newAPIServer(t), t.TempDir()
		b := server.bootstrap(t, dir)
		b.File = server.kubeconfig(t, &clientcmdapi.AuthInfo{Token: "abcdef.fedcba9876543210"})
		pauses := &impatient{}
		b.Clock = pauses
		if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--bootstrap-svcconfig: request a client certificate: ") {
			t.Errorf("got %v", err)
		}
		if len(pauses.waited) != rejections().Steps {
			t.Errorf("it failed after the pauses %v, want %d", pauses.waited, rejections().Steps)
		}
	})
	t.Run("request", func(t *testing.T) {
		server, dir := newAPIServer(t), t.TempDir()
		server.condition = certificatesv1.CertificateDenied
		b := server.bootstrap(t, dir)
		if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is denied") {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "svclet-client.key.tmp")); !os.IsNotExist(err) {
			t.Errorf("the key of the denied request is left: %v", err)
		}
	})
}

func TestBootstrapWaitsForTheRequestOfAnEarlierStart(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	b := server.bootstrap(t, dir)
	server.condition = certificatesv1.CertificateApproved
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Run(ctx); err == nil {
		t.Fatal("a start that is interrupted succeeds")
	}
	key, err := os.ReadFile(filepath.Join(dir, "svclet-client.key.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	pair, err := os.ReadFile(filepath.Join(dir, "svclet-client-current.pem"))
	if err != nil || !strings.Contains(string(pair), strings.TrimSpace(string(key))) {
		t.Errorf("the certificate is of another key than that of the earlier start (%v)", err)
	}
}
