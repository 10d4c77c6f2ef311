package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/auth"
)

// permissions allow what they list: "user verb subresource".
type permissions []string

func (p permissions) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	review, ok := obj.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return errors.New("no such review")
	}
	r := review.Spec.ResourceAttributes
	for _, allowed := range p {
		review.Status.Allowed = review.Status.Allowed || allowed == review.Spec.User+" "+r.Verb+" "+r.Subresource
	}
	return nil
}

func TestAuthorizationByPathAndMethod(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "ca") // of the same name
	credentials := map[string]*tls.Certificate{
		"no certificate": nil,
		"alice":          ptrTo(ca.pair(t, "alice", nil)),
		"bob":            ptrTo(ca.pair(t, "bob", nil)),
		"nameless":       ptrTo(ca.pair(t, "", nil)),
		"expired": ptrTo(ca.pair(t, "alice", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
		})),
		"not yet valid": ptrTo(ca.pair(t, "alice", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })),
		"for servers": ptrTo(ca.pair(t, "alice", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})),
		"of another authority": ptrTo(stranger.pair(t, "alice", nil)),
	}
	for _, c := range []struct {
		mode, who, method, path string
		anonymous               bool
		code                    int
	}{
		{auth.AlwaysAllow, "alice", "GET", "/pods", false, 200},
		{auth.AlwaysAllow, "no certificate", "GET", "/pods", true, 200},
		{auth.AlwaysAllow, "no certificate", "GET", "/pods", false, 401},
		{auth.AlwaysAllow, "no certificate", "GET", "/healthz", false, 401},
		{auth.AlwaysAllow, "nameless", "GET", "/pods", false, 401},
		{auth.AlwaysAllow, "expired", "GET", "/pods", true, 401},
		{auth.AlwaysAllow, "not yet valid", "GET", "/pods", true, 401},
		{auth.AlwaysAllow, "for servers", "GET", "/pods", true, 401},
		{auth.AlwaysAllow, "of another authority", "GET", "/pods", true, 401},
		{auth.Webhook, "alice", "GET", "/pods", false, 200},
		{auth.Webhook, "alice", "GET", "/pods/../runningpods/", false, 200}, // redirected, allowed
		{auth.Webhook, "bob", "GET", "/pods/../configz", false, 403},        // redirected, not allowed
		{auth.Webhook, "bob", "GET", "/configz", false, 403},
		{auth.Webhook, "alice", "POST", "/run/default/web/main", false, 403},
		{auth.Webhook, "bob", "GET", "/nothing", false, 403},
		{auth.Webhook, "bob", "POST", "/run/default/web/main", false, 200},
		{auth.Webhook, "bob", "GET", "/run/default/web/main", false, 405},
		{auth.Webhook, "alice", "GET", "/containerLogs/default/web/none", false, 404},
		{auth.Webhook, "alice", "GET", "/exec/default/web/main?command=id&output=1", false, 403}, // reading is not running
		{auth.Webhook, "bob", "GET", "/exec/default/web/main?command=id&output=1", false, 400},   // allowed, but no upgrade
		{auth.Webhook, "no certificate", "GET", "/healthz", true, 200},
		{auth.Webhook, "no certificate", "GET", "/pods", true, 403},
		{auth.Webhook, "no certificate", "GET", "/healthz", false, 401},
	} {
		t.Run(strings.Join([]string{c.mode, c.who, c.method, c.path}, " "), func(t *testing.T) {
			n := start(t, func(o *server.Options, p *server.Parts) {
				o.ClientCAFile = filepath.Join(t.TempDir(), "ca.crt")
				write(t, o.ClientCAFile, ca.pem)
				o.AnonymousAuth, o.AuthorizationMode = c.anonymous, c.mode
				p.Reviews = permissions{"alice get pods", "alice get proxy", "bob create proxy", "system:anonymous get healthz"}
				p.Configz = func() any { return nil }
			})
			n.pods.add(web())
			client := plainClient()
			if pair := credentials[c.who]; pair != nil {
				client.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return pair, nil // whether or not the server would like it
				}
			}
			to := "https://127.0.0.1:" + n.url("", nil).Port() + c.path
			code, body := fetch(t, client, c.method, to, nil)
			if code != c.code {
				t.Errorf("answered %d %q, want %d", code, body, c.code)
			}
			if code == 401 && body != "Unauthorized" {
				t.Errorf("says %q", body)
			}
		})
	}
}

func ptrTo[T any](v T) *T { return &v }

func TestChangedCertificatesAreReloaded(t *testing.T) {
	ca, next := newAuthority(t, "ca"), newAuthority(t, "next")
	dir := t.TempDir()
	certFile, keyFile, caFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")
	install := func(by *authority) {
		cert, key := by.sign(t, "node", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
		replace(t, certFile, cert)
		replace(t, keyFile, key)
	}
	install(ca)
	write(t, caFile, ca.pem)
	n := start(t, func(o *server.Options, _ *server.Parts) {
		o.TLSCertFile, o.TLSPrivateKeyFile, o.ClientCAFile = certFile, keyFile, caFile
		o.AnonymousAuth = false
	})
	asks := func(trusts *authority, as *authority) (int, error) {
		roots := x509.NewCertPool()
		roots.AddCert(trusts.cert)
		client := plainClient()
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{as.pair(t, "alice", nil)}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url("/pods", nil).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	expect := func(why string, trusts, as *authority, want int) {
		t.Helper()
		if code, err := asks(trusts, as); code != want {
			t.Errorf("%s: answered %d with error %v, want %d", why, code, err, want)
		}
	}
	expect("before", ca, ca, 200)

	install(next)
	expect("the serving pair has changed", next, ca, 200)
	replace(t, caFile, next.pem)
	expect("the clients' authority has changed", next, next, 200)
	expect("the old authority is believed no more", next, ca, 401)

	replace(t, certFile, []byte("half a certif"))
	expect("a pair in the middle of its rotation", next, next, 200)
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	expect("a key that is gone", next, next, 200)
	install(ca)
	expect("the rotation is complete", ca, next, 200)
}

// replace replaces a file, as a rotation does.
func replace(t *testing.T, path string, data []byte) {
	t.Helper()
	write(t, path+".new", data)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestASelfSignedCertificateIsCreatedKeptAndReplacedAfterExpiry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	o := server.Defaults()
	o.NodeName, o.CertDirectory = "node-1", dir
	clock := clocktesting.NewFakeClock(time.Now())
	read := func() (string, string) {
		t.Helper()
		cert, err := os.ReadFile(filepath.Join(dir, "svclet.crt"))
		if err != nil {
			t.Fatal(err)
		}
		key, err := os.ReadFile(filepath.Join(dir, "svclet.key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(cert), string(key)
	}
	create := func() {
		t.Helper()
		if _, err := server.New(o, server.Parts{Clock: clock}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	cert, key := read()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(filepath.Join(dir, "svclet.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info.Mode(), err)
	}
	create()
	if again, _ := read(); again != cert {
		t.Error("a valid pair was created again")
	}
	clock.SetTime(pair.Leaf.NotAfter.Add(time.Second))
	create()
	if again, _ := read(); again == cert {
		t.Error("an expired pair was kept")
	}
	write(t, filepath.Join(dir, "svclet.key"), []byte("garbage"))
	create()
	if _, again := read(); again == "garbage" {
		t.Error("a broken pair was kept")
	}
}

func TestASelfSignedCertificateNamesTheNodesAddresses(t *testing.T) {
	dir := t.TempDir()
	served := func(ip string) *x509.Certificate {
		t.Helper()
		n := start(t, func(o *server.Options, _ *server.Parts) {
			o.CertDirectory, o.NodeName, o.Addresses = dir, "a", []net.IP{net.ParseIP(ip)}
		})
		conn, err := tls.Dial("tcp", n.url("/", nil).Host, insecure())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	first := served("192.0.2.1")
	if first.VerifyHostname("192.0.2.1") != nil || first.VerifyHostname("a") != nil {
		t.Errorf("the certificate is for %v %v", first.DNSNames, first.IPAddresses)
	}
	if !served("192.0.2.1").Equal(first) {
		t.Error("a certificate for the same address is replaced")
	}
	if second := served("192.0.2.2"); second.VerifyHostname("192.0.2.2") != nil {
		t.Errorf("after a change of the address the certificate is for %v", second.IPAddresses)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, nil)
	for want, change := range map[string]func(*server.Options){
		"one is given and the other is not":              func(o *server.Options) { o.TLSCertFile = "x" },
		"load the serving certificate (--tls-cert-file":  func(o *server.Options) { o.TLSCertFile, o.TLSPrivateKeyFile = "/nowhere", "/nowhere" },
		"load the client authorities (--client-ca-file)": func(o *server.Options) { o.ClientCAFile = "/nowhere" },
		"data does not contain any valid":                func(o *server.Options) { o.ClientCAFile = empty },
		"tlsMinVersion":                                  func(o *server.Options) { o.TLSMinVersion = "VersionSSL3" },
		"tlsCipherSuites":                                func(o *server.Options) { o.TLSCipherSuites = []string{"ROT13"} },
		"tlsCurvePreferences":                            func(o *server.Options) { o.TLSCurvePreferences = []int32{1} },
		"neither AlwaysAllow nor Webhook":                func(o *server.Options) { o.AuthorizationMode = "RBAC" },
		"needs a connection to an API server":            func(o *server.Options) { o.AuthorizationMode = auth.Webhook },
		"without a connection to an API server":          func(o *server.Options) { o.TokenWebhook = true },
	} {
		o := server.Defaults()
		o.CertDirectory = sharedCertificates(t)
		change(&o)
		if _, err := server.New(o, server.Parts{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("failed with %v, want %q", err, want)
		}
	}
}

func TestOnlyConfiguredKeyExchangesAreAccepted(t *testing.T) {
	n := start(t, func(o *server.Options, _ *server.Parts) { o.TLSCurvePreferences = []int32{int32(tls.CurveP384)} })
	dial := func(offered ...tls.CurveID) (tls.CurveID, error) {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, CurvePreferences: offered}}
		c, err := d.DialContext(t.Context(), "tcp", n.url("", nil).Host)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().CurveID, nil
	}
	if used, err := dial(tls.X25519, tls.CurveP384); err != nil || used != tls.CurveP384 {
		t.Errorf("%s was used, want %s: %v", used, tls.CurveP384, err)
	}
	if used, err := dial(tls.X25519, tls.CurveP256); err == nil {
		t.Errorf("%s was used", used)
	}
}

func TestTheMinimumTLSVersionIsEnforced(t *testing.T) {
	n := start(t, func(o *server.Options, _ *server.Parts) { o.TLSMinVersion = "VersionTLS13" })
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}
	if c, err := d.DialContext(t.Context(), "tcp", n.url("", nil).Host); err == nil {
		c.Close()
		t.Error("TLS 1.2 was spoken")
	}
}
