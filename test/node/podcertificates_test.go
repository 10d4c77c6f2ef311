package node

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
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// podSigner is a signer of certificates of pods, with its authority.
type podSigner struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	// name is the signer's.
	name string
}

func newPodSigner(name string) podSigner {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	Expect(err).NotTo(HaveOccurred())
	return podSigner{key, certificate, name}
}

// pem returns the authority's certificate.
func (s podSigner) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate.Raw}))
}

// publish makes a bundle of the authorities the one of the signer.
func (s podSigner) publish(ctx context.Context, authorities ...podSigner) {
	GinkgoHelper()
	bundle := certificatesv1.ClusterTrustBundle{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle"},
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(s.name, "/", ":") + ":live", Labels: map[string]string{"stage": "live"}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: s.name},
	}
	for _, a := range authorities {
		bundle.Spec.TrustBundle += a.pem()
	}
	manifest, err := json.Marshal(bundle)
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, "default", string(manifest))
}

// pending returns the request for a certificate of a pod about which nothing has been
// decided.
func (s podSigner) pending(ctx context.Context, space space, pod string) *certificatesv1.PodCertificateRequest {
	GinkgoHelper()
	var list certificatesv1.PodCertificateRequestList
	var found *certificatesv1.PodCertificateRequest
	Eventually(func() ([]certificatesv1.PodCertificateRequest, error) {
		err := client.List(ctx, &list, ctrlclient.InNamespace(space.name))
		list.Items = slices.DeleteFunc(list.Items, func(r certificatesv1.PodCertificateRequest) bool {
			return r.Spec.SignerName != s.name || r.Spec.PodName != pod || len(r.Status.Conditions) > 0
		})
		return list.Items, err
	}).WithContext(ctx).Should(HaveLen(1))
	found = &list.Items[0]
	return found
}

// issue issues the certificate that a pod waits for, with a serial number.
func (s podSigner) issue(ctx context.Context, space space, pod string, serial int64) {
	GinkgoHelper()
	r := s.pending(ctx, space, pod)
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	Expect(err).NotTo(HaveOccurred())
	Expect(stub.CheckSignature()).To(Succeed())
	from := time.Now().Truncate(time.Second)
	until := from.Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: r.Spec.ServiceAccountName + "." + r.Namespace},
		NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, s.certificate, stub.PublicKey, s.key)
	Expect(err).NotTo(HaveOccurred())
	r.Status.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + s.pem()
	begin, notBefore, notAfter := metav1.NewTime(from.Add(30*time.Minute)), metav1.NewTime(from), metav1.NewTime(until)
	r.Status.BeginRefreshAt, r.Status.NotBefore, r.Status.NotAfter = &begin, &notBefore, &notAfter
	s.decide(ctx, r, certificatesv1.PodCertificateRequestConditionTypeIssued)
}

func (s podSigner) decide(ctx context.Context, r *certificatesv1.PodCertificateRequest, state string) {
	GinkgoHelper()
	r.Status.Conditions = []metav1.Condition{{Type: state, Status: metav1.ConditionTrue, Reason: "Decided", Message: "by the spec", LastTransitionTime: metav1.Now()}}
	Expect(client.Status().Update(ctx, r)).To(Succeed())
}

// soonRenewed starts a server between an agent and its API server, by which the first
// certificate of each pod is to be renewed at once: the API demands ten minutes at least,
// and the agent adds up to five. It returns its URL.
func soonRenewed(cluster launch.Cluster, user string) string {
	isWatch := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/podcertificaterequests") && r.URL.Query().Get("watch") != ""
	}
	return between(cluster, user, isWatch, func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return nil
		}
		from := resp.Body
		out, in := io.Pipe()
		resp.Body = struct {
			io.Reader
			io.Closer
		}{out, from}
		go func() { in.CloseWithError(renewFirst(from, in)) }()
		return nil
	})
}

// renewFirst copies the events of a watch, and changes when the first certificate of each
// pod is to be renewed.
func renewFirst(from io.Reader, to io.Writer) error {
	first := map[string]string{}
	decoder, encoder := json.NewDecoder(from), json.NewEncoder(to)
	for {
		var event metav1.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		var r certificatesv1.PodCertificateRequest
		if err := json.Unmarshal(event.Object.Raw, &r); err != nil {
			return err
		}
		pod := string(r.Spec.PodUID)
		if first[pod] == "" {
			first[pod] = r.Name
		}
		if r.Status.BeginRefreshAt != nil && first[pod] == r.Name {
			before := metav1.NewTime(time.Now().Add(-5 * time.Minute))
			r.Status.BeginRefreshAt = &before
			raw, err := json.Marshal(r)
			if err != nil {
				return err
			}
			event.Object.Raw = raw
		}
		if err := encoder.Encode(event); err != nil {
			return err
		}
	}
}

// The kinds are those of release 1.37, so the spec uses its own API server and agent.
var _ = Describe("trust bundles and certificates", func() {
	It("of signers are in the volumes of pods, and are renewed there", func(ctx SpecContext) {
		const name = "certified"
		suiteClient, suiteKubectl := client, kubectl
		DeferCleanup(func() { client, kubectl = suiteClient, suiteKubectl })
		machine := newMachine(ctx)
		server, err := launch.Up(ctx, filepath.Join(machine.Dir, "server"), "--release=1.37")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Kill)
		client, err = clientOf(server.Config)
		Expect(err).NotTo(HaveOccurred())
		kubectl = launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: machine.Dir}
		program, err := launch.Svclet.Program()
		Expect(err).NotTo(HaveOccurred())
		agent, err := machine.NewAgent(launch.Svclet, program, name)
		Expect(err).NotTo(HaveOccurred())
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		through := cluster
		through.Server = soonRenewed(cluster, "system:node:"+name)
		Expect(agent.Configure(through)).To(Succeed())
		Expect(agent.Start()).To(Succeed())
		DeferCleanup(func() { agent.Kill() })

		s, signer, other := newSpace(ctx), newPodSigner("example.com/signer"), newPodSigner("example.com/other")
		withTLS := func(name string) string {
			return sleeper(name, `securityContext: {runAsUser: 65534}, volumes: [{name: tls, projected: {sources: [
  {clusterTrustBundle: {signerName: example.com/signer, labelSelector: {matchLabels: {stage: live}}, path: ca.pem}},
  {clusterTrustBundle: {signerName: kubernetes.io/kube-apiserver-serving, labelSelector: {}, path: server.pem}},
  {clusterTrustBundle: {name: none, optional: true, path: none.pem}},
  {podCertificate: {signerName: example.com/signer, keyType: ED25519, credentialBundlePath: bundle.pem}}]}}]`)
		}
		mounting := func(name string) string {
			return strings.Replace(withTLS(name), "command:", "volumeMounts: [{name: tls, mountPath: /tls}], command:", 1)
		}
		s.apply(ctx, mounting("web"))
		Eventually(s.events(ctx, "web")).Should(And(
			ContainElement(ContainSubstring(`matched zero ClusterTrustBundles: signerName is "example.com/signer"`)),
			ContainElement(ContainSubstring(`for signer "example.com/signer" is pending`))), agent.Output)

		signer.publish(ctx, signer)
		signer.issue(ctx, s, "web", 1)
		s.await(ctx, "web", beReady())
		file := func(name string) string { return s.exec(ctx, "web", "cat /tls/"+name) }
		serial := func(g Gomega) int64 {
			content := []byte(file("bundle.pem"))
			pair, err := tls.X509KeyPair(content, content)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: poolOf(file("ca.pem")), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			g.Expect(err).NotTo(HaveOccurred())
			return pair.Leaf.SerialNumber.Int64()
		}
		Expect(serial(Default)).To(BeEquivalentTo(1))
		Expect(file("ca.pem")).To(Equal(signer.pem()))
		Expect(file("none.pem")).To(BeEmpty())
		authority, err := os.ReadFile(cluster.Authority.File)
		Expect(err).NotTo(HaveOccurred())
		Expect(poolOf(file("server.pem")).Equal(poolOf(string(authority)))).To(BeTrue())
		Expect(s.exec(ctx, "web", "stat -L -c '%a %u' /tls/bundle.pem /tls/ca.pem")).To(Equal("600 65534\n600 65534\n"))

		By("when a bundle changes")
		signer.publish(ctx, signer, other)
		Eventually(func() bool { return poolOf(file("ca.pem")).Equal(poolOf(signer.pem() + other.pem())) }).Should(BeTrue())
		Expect(s.run(ctx, "get", "clustertrustbundles", "-o", "name")).To(ContainSubstring("example.com:signer:live"))

		By("when a certificate is due")
		signer.issue(ctx, s, "web", 2)
		Eventually(serial).Should(BeEquivalentTo(2))
		Expect(s.await(ctx, "web", beReady())).To(HaveField("Status.ContainerStatuses", ContainElement(HaveField("RestartCount", BeZero()))))

		By("and a pod whose certificate is denied waits, and says so")
		s.apply(ctx, mounting("denied"))
		signer.decide(ctx, signer.pending(ctx, s, "denied"), certificatesv1.PodCertificateRequestConditionTypeDenied)
		Eventually(s.events(ctx, "denied")).Should(ContainElement(And(
			HavePrefix("Denied: PodCertificateRequest "), HaveSuffix(`was denied, reason="Decided", message="by the spec"`))))
		s.await(ctx, "denied", inPhase(corev1.PodPending))
		s.run(ctx, "delete", "pod", "web", "denied")
	})
})

func poolOf(certificates string) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certificates))
	return pool
}
