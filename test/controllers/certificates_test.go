package controllers

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/test/launch"
)

// runSVC runs a command of svc against a server, and returns what it prints.
func runSVC(ctx context.Context, server *launch.Server, args ...string) (string, error) {
	GinkgoHelper()
	binary, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append(args, "--svcconfig="+server.Kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	GinkgoWriter.Println(errOut.String())
	return out.String(), err
}

var _ = Describe("certificates", Ordered, func() {
	var server *launch.Server
	var dir string

	BeforeAll(func(ctx SpecContext) {
		var err error
		dir, err = launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		// svc up gives the controllers the cluster's authority.
		server, err = launch.Up(ctx, filepath.Join(dir, "data"), "--controllers=csrapproving,csrsigning,csrcleaner")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			_, err := server.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
		})
	})

	// request returns a request, and its key in PEM.
	request := func(signer string, subject pkix.Name) (*certificatesv1.CertificateSigningRequest, []byte) {
		GinkgoHelper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		Expect(err).NotTo(HaveOccurred())
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		Expect(err).NotTo(HaveOccurred())
		private, err := keyutil.MarshalPrivateKeyToPEM(key)
		Expect(err).NotTo(HaveOccurred())
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			},
		}, private
	}
	// as returns a client with a certificate.
	as := func(certificate, key []byte) kubernetes.Interface {
		config := rest.AnonymousClientConfig(server.Config)
		config.CertData, config.KeyData = certificate, key
		return kubernetes.NewForConfigOrDie(config)
	}
	// issued returns the certificate of a request, nil until it is signed.
	issued := func(ctx context.Context, client kubernetes.Interface, name string) func() ([]byte, error) {
		return func() ([]byte, error) {
			csr, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return csr.Status.Certificate, nil
		}
	}
	node := pkix.Name{CommonName: "system:node:joins", Organization: []string{"system:nodes"}}

	It("are issued to a node that has a bootstrap token, and renewed", func(ctx SpecContext) {
		token, err := runSVC(ctx, server, "token", "create")
		Expect(err).NotTo(HaveOccurred())
		config := rest.AnonymousClientConfig(server.Config)
		config.BearerToken = strings.TrimSpace(token)
		var joining kubernetes.Interface = kubernetes.NewForConfigOrDie(config)
		for range 2 {
			csr, key := request(certificatesv1.KubeAPIServerClientKubeletSignerName, node)
			csr, err = joining.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			var certificate []byte
			Eventually(func() ([]byte, error) {
				certificate, err = issued(ctx, joining, csr.Name)()
				return certificate, err
			}).ShouldNot(BeEmpty())
			// The second request is the node's own.
			joining = as(certificate, key)
			_, err = joining.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
			Expect(err).To(MatchError(ContainSubstring(`node "joins" is not allowed to modify node`)))
		}
	})

	It("are not issued to a bootstrap token of another group, nor for the name of another node", func(ctx SpecContext) {
		admin := kubernetes.NewForConfigOrDie(server.Config)
		token, err := runSVC(ctx, server, "token", "create", "--groups=system:bootstrappers:other")
		Expect(err).NotTo(HaveOccurred())
		config := rest.AnonymousClientConfig(server.Config)
		config.BearerToken = strings.TrimSpace(token)
		csr, _ := request(certificatesv1.KubeAPIServerClientKubeletSignerName, node)
		_, err = kubernetes.NewForConfigOrDie(config).CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("cannot create resource \"certificatesigningrequests\"")))

		By("asking as a node for another's certificate")
		impersonating := rest.CopyConfig(server.Config)
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: "system:node:evil", Groups: []string{"system:nodes"}}
		csr, err = kubernetes.NewForConfigOrDie(impersonating).CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred()) // admission refuses it since release 1.31
		Consistently(issued(ctx, admin, csr.Name)).Should(BeEmpty())
	})

	It("are issued to a user whose request is approved", func(ctx SpecContext) {
		admin := kubernetes.NewForConfigOrDie(server.Config)
		csr, key := request(certificatesv1.KubeAPIServerClientSignerName, pkix.Name{CommonName: "ann", Organization: []string{"dev"}})
		csr, err := admin.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Consistently(issued(ctx, admin, csr.Name)).Should(BeEmpty())
		kubectl := launch.Kubectl{Kubeconfig: server.Kubeconfig, Home: dir}
		_, errOut, err := kubectl.Run(ctx, "", "certificate", "approve", csr.Name)
		Expect(err).NotTo(HaveOccurred(), errOut)
		Eventually(issued(ctx, admin, csr.Name)).ShouldNot(BeEmpty())
		certificate, err := issued(ctx, admin, csr.Name)()
		Expect(err).NotTo(HaveOccurred())
		_, err = as(certificate, key).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring(`User "ann" cannot list resource "pods"`)))
	})

	It("are made for users by svc user create", func(ctx SpecContext) {
		config, err := runSVC(ctx, server, "user", "create", "bea", "--group=dev", "--group=ops", "--expires=1h")
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(dir, "bea")
		Expect(os.WriteFile(file, []byte(config), 0o600)).To(Succeed())
		kubectl := launch.Kubectl{Kubeconfig: file, Home: dir}
		out, errOut, err := kubectl.Run(ctx, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
		Expect(err).NotTo(HaveOccurred(), errOut)
		Expect(out).To(Equal(`bea ["dev","ops","system:authenticated"]`))
		list, err := kubernetes.NewForConfigOrDie(server.Config).CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, csr := range list.Items {
			Expect(csr.Name).NotTo(HavePrefix("svc-user-"))
		}
	})
})
