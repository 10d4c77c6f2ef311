package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
)

func TestAFirstStartMakesAllFiles(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)

	roots := x509.NewCertPool()
	roots.AddCert(e.certificate(t, "ca"))
	serving := e.certificate(t, "apiserver")
	for _, name := range []string{
		"localhost", "127.0.0.1", "::1", "10.0.0.1", "machine", "192.0.2.7",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	} {
		if err := serving.VerifyHostname(name); err != nil {
			t.Errorf("the serving certificate: %v", err)
		}
	}
	verify(t, serving, roots, x509.ExtKeyUsageServerAuth)
	admin := e.certificate(t, "admin")
	verify(t, admin, roots, x509.ExtKeyUsageClientAuth)
	if got := admin.Subject.String(); got != "CN=svc-admin,O=system:masters" {
		t.Errorf("the administrator is %s", got)
	}
	frontProxy := x509.NewCertPool()
	frontProxy.AddCert(e.certificate(t, "front-proxy-ca"))
	verify(t, e.certificate(t, "front-proxy-client"), frontProxy, x509.ExtKeyUsageClientAuth)
	if _, err := admin.Verify(x509.VerifyOptions{Roots: frontProxy, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the administrator's certificate is valid for the front proxies' authority")
	}

	key, err := keyutil.PrivateKeyFromFile(e.path("sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := keyutil.PublicKeysFromFile(e.path("sa.pub"))
	if err != nil {
		t.Fatal(err)
	}
	signer := key.(*ecdsa.PrivateKey)
	if signer.Curve != elliptic.P256() || !signer.PublicKey.Equal(public[0]) {
		t.Error("sa.key and sa.pub are not a P-256 pair")
	}
}

func TestTheControllersAreNotAdministrators(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	if got := e.certificate(t, "controller-manager").Subject.String(); got != "CN="+ControllersClient {
		t.Errorf("the controllers are %s", got)
	}
}

func TestANodesCertificatesAreValidOnlyForTheNode(t *testing.T) {
	e := newEnvironment(t)
	e.cfg.NodeName, e.cfg.NodeFile = "worker", e.path("../node.svcconfig")
	e.open(t)
	roots := x509.NewCertPool()
	roots.AddCert(e.certificate(t, "ca"))
	client, serving := e.certificate(t, "node"), e.certificate(t, "node-serving")
	verify(t, client, roots, x509.ExtKeyUsageClientAuth)
	verify(t, serving, roots, x509.ExtKeyUsageServerAuth)
	if got := client.Subject.String(); got != "CN=system:node:worker,O=system:nodes" {
		t.Errorf("the node is %s", got)
	}
	for _, name := range []string{"worker", "127.0.0.1", "192.0.2.7"} {
		if err := serving.VerifyHostname(name); err != nil {
			t.Errorf("the node's serving certificate: %v", err)
		}
	}
	for _, name := range []string{"kubernetes", "kubernetes.default.svc"} {
		if err := serving.VerifyHostname(name); err == nil {
			t.Errorf("the node's serving certificate is valid for %s", name)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.cfg.NodeFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(config.CertData) != e.read(t, "node.crt") {
		t.Error("the node's kubeconfig does not have the node's certificate")
	}
	if got := e.certificate(t, "apiserver-kubelet-client").Subject.String(); got != "CN="+NodesClient {
		t.Errorf("to nodes the API server is %s", got)
	}
}

func TestAnErrorOfNamesFailsTheStart(t *testing.T) {
	e := newEnvironment(t)
	lost := errors.New("lost")
	e.cfg.Names = func() ([]string, error) { return nil, lost }
	if _, err := Open(e.cfg); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}
