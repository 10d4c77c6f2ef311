package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/footprint/leaks"
)

func TestTheUserOfAConnection(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o, member := newOptions(t)
	dir := t.TempDir()
	keys, err := pki.Open(pki.Config{
		Dir: dir, Names: func() ([]string, error) { return []string{"127.0.0.1"}, nil }, ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)},
		ConnectionFile: filepath.Join(dir, "connection"), ControllersFile: filepath.Join(dir, "controllers"), Server: "https://127.0.0.1",
	})
	if err != nil {
		t.Fatal(err)
	}
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = keys.Certificate("apiserver"), keys.Key("apiserver")
	o.Authentication.ClientCAFile = keys.Certificate("ca")
	o.Authentication.RequestHeader.ClientCAFile = keys.Certificate("front-proxy-ca")
	o.Authentication.RequestHeader.AllowedNames = []string{"front-proxy-client"}
	r := start(t, o)

	roots := x509.NewCertPool()
	if ca, err := os.ReadFile(keys.Certificate("ca")); err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("no authority: %v", err)
	}
	const review, user, group = "/apis/authentication.k8s.io/v1/selfsubjectreviews", "X-Remote-User", "X-Remote-Group"
	for _, test := range []struct {
		rule, name, token string
		header            map[string]string
		code              int
		want              string
	}{
		{"a client certificate", "admin", "", nil, http.StatusCreated, `"username":"svc-admin"`},
		{"a client certificate with a proxy's headers", "admin", "", map[string]string{user: "eve"}, http.StatusCreated, `"username":"svc-admin"`},
		{"a proxy", "front-proxy-client", "", map[string]string{user: "eve", group: "dev"}, http.StatusCreated, `"username":"eve","groups":["dev","system:authenticated"]`},
		{"a token with a proxy's headers", "", adminToken, map[string]string{user: "eve"}, http.StatusCreated, `"username":"admin"`},
		{"an anonymous client with a proxy's headers", "", "", map[string]string{user: "eve", group: "system:masters"}, http.StatusForbidden, `system:anonymous`},
		{"a bad token", "", "guess", nil, http.StatusUnauthorized, "Unauthorized"},
		{"a bad token with a proxy's headers", "", "guess", map[string]string{user: "eve"}, http.StatusUnauthorized, "Unauthorized"},
		{"an administrator who impersonates a user", "admin", "", map[string]string{"Impersonate-User": "bob"}, http.StatusCreated, `"username":"bob"`},
		{"a user who impersonates another", "front-proxy-client", "", map[string]string{user: "eve", "Impersonate-User": "bob"}, http.StatusForbidden, `cannot impersonate`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			config := &tls.Config{RootCAs: roots}
			if test.name != "" {
				cert, err := tls.LoadX509KeyPair(keys.Certificate(test.name), keys.Key(test.name))
				if err != nil {
					t.Fatal(err)
				}
				config.Certificates = []tls.Certificate{cert}
			}
			transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+review, strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			for key, value := range test.header {
				req.Header.Set(key, value)
			}
			if test.token != "" {
				req.Header.Set("Authorization", "Bearer "+test.token)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != test.code || !strings.Contains(string(body), test.want) {
				t.Errorf("answered %d %s, want %d %s", resp.StatusCode, body, test.code, test.want)
			}
		})
	}
	r.stop(t)
	member.Stop()
	leaks.None(t, append(librariesLeak(), before)...)
}

// inOwnProcess reports whether the test runs in a process of its own. If not, it runs the
// test in one, whose failure fails the test.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	const own = "PROCESS_OF_ITS_OWN"
	if os.Getenv(own) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), own+"=true")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestABadCertificateFileIsReportedAndTheLastGoodOneStays overwrites the files of the
// authority of clients and of the serving certificate while the server runs. It does so in a
// process of its own: klog's logger cannot be replaced while servers of other tests log.
func TestABadCertificateFileIsReportedAndTheLastGoodOneStays(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	o, _ := newOptions(t)
	keys, err := pki.Open(pki.Config{Dir: t.TempDir(), ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	serving := keys.Certificate("apiserver")
	o.SecureServing.ServerCert.CertKey.CertFile, o.SecureServing.ServerCert.CertKey.KeyFile = serving, keys.Key("apiserver")
	o.Authentication.ClientCAFile = keys.Certificate("ca")
	r := start(t, o)
	roots := x509.NewCertPool()
	if ca, err := os.ReadFile(keys.Certificate("ca")); err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("no authority: %v", err)
	}
	admin, err := tls.LoadX509KeyPair(keys.Certificate("admin"), keys.Key("admin"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}}, DisableKeepAlives: true}
	namespaces := func() (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/namespaces", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err) // for example, the serving certificate is another one
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.Status
	}
	for file, says := range map[string]string{keys.Certificate("ca"): "error loading CA bundle for", serving: "failed to find any PEM data in certificate input"} {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
			t.Fatal(err)
		}
		await(t, func() (int, string) {
			if log := logger.GetSink().(ktesting.Underlier).GetBuffer().String(); !strings.Contains(log, says) {
				return http.StatusTeapot, log
			}
			return http.StatusOK, ""
		}, http.StatusOK)
		if code, status := namespaces(); code != http.StatusOK {
			t.Errorf("with a bad %s: %s", filepath.Base(file), status)
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
