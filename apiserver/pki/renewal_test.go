package pki

import (
	"crypto"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

func TestFilesThatALaterStartReplaces(t *testing.T) {
	for _, tc := range []struct {
		name     string
		after    time.Duration
		change   func(t *testing.T, e *environment)
		replaced []string
	}{
		{name: "nothing after a day", after: day},
		{name: "nothing shortly before leaves expire soon", after: leafLifetime - leafRenewal - day},
		{name: "leaves that expire soon", after: leafLifetime - leafRenewal + day, replaced: []string{"apiserver.crt", "admin.crt", "controller-manager.crt", "svc-up.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "leaves that have expired", after: 2 * leafLifetime, replaced: []string{"apiserver.crt", "admin.crt", "controller-manager.crt", "svc-up.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "all certificates when the authorities expire soon", after: authorityLifetime - authorityRenewal + day,
			replaced: []string{"ca.crt", "front-proxy-ca.crt", "apiserver.crt", "admin.crt", "controller-manager.crt", "svc-up.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "all certificates when the clock was set back", after: -30 * day,
			replaced: []string{"ca.crt", "front-proxy-ca.crt", "apiserver.crt", "admin.crt", "controller-manager.crt", "svc-up.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "the serving certificate when the machine has another name", change: func(_ *testing.T, e *environment) {
			e.names = []string{"other", "192.0.2.7"}
		}, replaced: []string{"apiserver.crt"}},
		{name: "the serving certificate when the machine has another address", change: func(_ *testing.T, e *environment) {
			e.names = []string{"machine", "192.0.2.8"}
		}, replaced: []string{"apiserver.crt"}},
		{name: "nothing when the machine has lost an address", change: func(_ *testing.T, e *environment) {
			e.names = []string{"machine"}
		}},
		{name: "the serving certificate when the service range has changed", change: func(_ *testing.T, e *environment) {
			e.cfg.ServiceIPs = []net.IP{net.IPv4(10, 9, 0, 1)}
		}, replaced: []string{"apiserver.crt"}},
		{name: "the connection file when the server has another address", change: func(_ *testing.T, e *environment) {
			e.cfg.Server = "https://127.0.0.1:7443"
		}, replaced: []string{"connection", "controllers"}},
		{name: "a certificate that was removed", change: func(t *testing.T, e *environment) {
			e.remove(t, "admin.crt")
		}, replaced: []string{"admin.crt", "connection"}},
		{name: "a pair that was removed", change: func(t *testing.T, e *environment) {
			e.remove(t, "admin.crt", "admin.key")
		}, replaced: []string{"admin.crt", "admin.key", "connection"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnvironment(t)
			e.open(t)
			before := e.all(t)
			e.clock.SetTime(start.Add(tc.after))
			if tc.change != nil {
				tc.change(t, e)
			}
			e.open(t)
			after := e.all(t)
			replaced := map[string]bool{}
			for _, file := range tc.replaced {
				replaced[file] = true
			}
			for file := range after {
				if changed := before[file] != after[file]; changed != replaced[file] {
					t.Errorf("%s: replaced %v, want %v", file, changed, replaced[file])
				}
			}
			roots := x509.NewCertPool()
			roots.AddCert(e.certificate(t, "ca"))
			for _, leaf := range []string{"apiserver", "admin"} {
				opts := x509.VerifyOptions{Roots: roots, CurrentTime: e.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
				if _, err := e.certificate(t, leaf).Verify(opts); err != nil {
					t.Errorf("%s: %v", leaf, err)
				}
			}
		})
	}
}

// TestTheCertificateOfAnotherUserIsReplaced opens a directory in which the controllers'
// certificate names the user of kube-controller-manager, as svc made it formerly.
func TestTheCertificateOfAnotherUserIsReplaced(t *testing.T) {
	e := newEnvironment(t)
	p := e.open(t)
	ca, _, err := p.ensure(authority("ca", "svc-ca"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.ensure(client("controller-manager", "system:kube-controller-manager"), ca); err != nil {
		t.Fatal(err)
	}
	if got := e.certificate(t, "controller-manager").Subject.CommonName; got != "system:kube-controller-manager" {
		t.Fatalf("the controllers are %s", got)
	}
	key := e.read(t, "controller-manager.key")
	e.open(t)
	if got := e.certificate(t, "controller-manager").Subject.CommonName; got != ControllersClient {
		t.Errorf("the controllers are %s", got)
	}
	if e.read(t, "controller-manager.key") != key {
		t.Error("the key was replaced")
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.cfg.ControllersFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(config.CertData) != e.read(t, "controller-manager.crt") {
		t.Error("the controllers' kubeconfig does not have the new certificate")
	}
}

func TestCertificatesStayValidWhenTheirAuthorityIsRenewed(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	old := e.certificate(t, "admin")
	e.clock.SetTime(start.Add(authorityLifetime - authorityRenewal + day))
	e.open(t)
	roots := x509.NewCertPool()
	roots.AddCert(e.certificate(t, "ca"))
	if err := old.CheckSignatureFrom(e.certificate(t, "ca")); err != nil {
		t.Error(err)
	}
}

func TestANodesCertificateWithTheNameOfAPIServersIsReplaced(t *testing.T) {
	e := newEnvironment(t)
	e.cfg.NodeName, e.cfg.NodeFile = "worker", e.path("../node.svcconfig")
	e.open(t)
	keyOf := func(name string) crypto.Signer {
		key, err := keyutil.ParsePrivateKeyPEM([]byte(e.read(t, name+".key")))
		if err != nil {
			t.Fatal(err)
		}
		return key.(crypto.Signer)
	}
	// Former versions of svc added the names of API servers.
	wide := server("node-serving", nodeUser("worker"), []string{apiServerName})
	own := e.certificate(t, "node-serving")
	wide.template.DNSNames = append(wide.template.DNSNames, own.DNSNames...)
	wide.template.IPAddresses = own.IPAddresses
	made, err := issue(wide, keyOf("node-serving"), &pair{e.certificate(t, "ca"), keyOf("ca")}, e.cfg.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	content, err := cert.EncodeCertificates(made)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path("node-serving.crt"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	e.open(t)
	if err := e.certificate(t, "node-serving").VerifyHostname(apiServerName); err == nil {
		t.Error("the certificate was not replaced")
	}
}
