package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAFirstStartMakesEverything(t *testing.T) {
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
		t.Error("the front proxies' authority vouches for the administrator")
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

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	if err := os.Chmod(e.path("ca.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.open(t)
	err := filepath.WalkDir(e.cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAConnectionFileIsThatOfItsClient(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	for name, file := range map[string]string{"admin": e.cfg.ConnectionFile, "controller-manager": e.cfg.ControllersFile} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != e.cfg.Server {
			t.Errorf("%s: it names %s", name, config.Host)
		}
		for what, is := range map[string]struct {
			got  []byte
			want string
		}{
			"authority":   {config.CAData, e.read(t, "ca.crt")},
			"certificate": {config.CertData, e.read(t, name+".crt")},
			"key":         {config.KeyData, e.read(t, name+".key")},
		} {
			if string(is.got) != is.want {
				t.Errorf("%s: its %s is not the one in the directory", name, what)
			}
		}
	}
}

func TestTheControllersAreNoAdministrators(t *testing.T) {
	e := newEnvironment(t)
	e.open(t)
	if got := e.certificate(t, "controller-manager").Subject.String(); got != "CN="+ControllersClient {
		t.Errorf("the controllers are %s", got)
	}
}

func TestANodeIsItselfOnly(t *testing.T) {
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
			t.Errorf("the node's serving certificate passes for that of %s", name)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.cfg.NodeFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(config.CertData) != e.read(t, "node.crt") {
		t.Error("the node's connection file has another certificate than the node")
	}
	if got := e.certificate(t, "apiserver-kubelet-client").Subject.String(); got != "CN="+NodesClient {
		t.Errorf("to nodes the API server is %s", got)
	}
}

func TestWhatALaterStartReplaces(t *testing.T) {
	for _, tc := range []struct {
		name     string
		after    time.Duration
		change   func(t *testing.T, e *environment)
		replaced []string
	}{
		{name: "nothing after a day", after: day},
		{name: "nothing shortly before leaves are near their end", after: leafLifetime - leafRenewal - day},
		{name: "leaves near their end", after: leafLifetime - leafRenewal + day, replaced: []string{"apiserver.crt", "admin.crt", "controller-manager.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "leaves past their end", after: 2 * leafLifetime, replaced: []string{"apiserver.crt", "admin.crt", "controller-manager.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "all certificates when the authorities are near their end", after: authorityLifetime - authorityRenewal + day,
			replaced: []string{"ca.crt", "front-proxy-ca.crt", "apiserver.crt", "admin.crt", "controller-manager.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
		{name: "all certificates when the clock was set back", after: -30 * day,
			replaced: []string{"ca.crt", "front-proxy-ca.crt", "apiserver.crt", "admin.crt", "controller-manager.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "connection", "controllers"}},
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

func TestAnAuthorityOfTheUsersOwnKeepsItsName(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	brought, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "the company", Organization: []string{"of mine"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := cert.EncodeCertificates(brought)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnvironment(t)
	e.write(t, "ca.crt", string(content))
	e.write(t, "ca.key", string(pem))
	e.clock.SetTime(brought.NotBefore.Add(day))
	e.open(t)
	if e.read(t, "ca.crt") != string(content) {
		t.Error("it was replaced")
	}
	e.clock.SetTime(brought.NotAfter.Add(-day))
	e.open(t)
	if got := e.certificate(t, "ca"); got.Subject.String() != brought.Subject.String() || !got.NotAfter.After(brought.NotAfter) {
		t.Errorf("renewed as %s until %s", got.Subject, got.NotAfter)
	}
}

func TestARenewedAuthorityVouchesForWhatTheOldOneSigned(t *testing.T) {
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

func TestAFileThatIsNotOursIsNamedAndLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, e *environment)
		file   string
		says   string
	}{
		{"a half-written certificate", func(t *testing.T, e *environment) {
			e.write(t, "ca.crt", e.read(t, "ca.crt")[:300])
		}, "ca.crt", "is not a certificate"},
		{"an empty certificate", func(t *testing.T, e *environment) { e.write(t, "admin.crt", "") }, "admin.crt", "is not a certificate"},
		{"a half-written key", func(t *testing.T, e *environment) {
			e.write(t, "apiserver.key", e.read(t, "apiserver.key")[:100])
		}, "apiserver.key", "is not a private key"},
		{"a half-written signing key", func(t *testing.T, e *environment) {
			e.write(t, "sa.key", e.read(t, "sa.key")[:100])
		}, "sa.key", "is not a private key"},
		{"a key that is gone", func(t *testing.T, e *environment) { e.remove(t, "ca.key") }, "ca.key", "is missing"},
		{"a signing key that is gone", func(t *testing.T, e *environment) { e.remove(t, "sa.key") }, "sa.key", "is missing"},
		{"the certificate of another key", func(t *testing.T, e *environment) {
			e.write(t, "admin.crt", e.read(t, "apiserver.crt"))
		}, "admin.crt", "is not the certificate of"},
		{"the public key of another key", func(t *testing.T, e *environment) {
			other := newEnvironment(t)
			other.open(t)
			e.write(t, "sa.pub", other.read(t, "sa.pub"))
		}, "sa.pub", "is not the public key of"},
		{"the pair of another authority", func(t *testing.T, e *environment) {
			other := newEnvironment(t)
			other.open(t)
			e.write(t, "apiserver.crt", other.read(t, "apiserver.crt"))
			e.write(t, "apiserver.key", other.read(t, "apiserver.key"))
		}, "apiserver.crt", "was not signed by"},
		{"a leaf in the place of the authority", func(t *testing.T, e *environment) {
			e.write(t, "ca.crt", e.read(t, "admin.crt"))
			e.write(t, "ca.key", e.read(t, "admin.key"))
		}, "ca.crt", "is not a certificate authority"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnvironment(t)
			e.open(t)
			tc.damage(t, e)
			before := e.all(t)
			_, err := Open(e.cfg)
			if err == nil {
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), e.path(tc.file)) || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line that names %s and says %q", err, tc.file, tc.says)
			}
			for file, content := range e.all(t) {
				if before[file] != content {
					t.Errorf("%s was overwritten", file)
				}
			}
		})
	}
}

func TestAStartThatWasInterruptedIsCompleted(t *testing.T) {
	// Files appear one by one; whichever is the first that is missing, the next
	// start goes on from there.
	whole := newEnvironment(t)
	whole.open(t)
	order := []string{"ca.key", "ca.crt", "apiserver.key", "apiserver.crt", "admin.key", "admin.crt",
		"front-proxy-ca.key", "front-proxy-ca.crt", "front-proxy-client.key", "front-proxy-client.crt", "sa.key", "sa.pub"}
	for made := range order {
		e := newEnvironment(t)
		for _, file := range order[:made] {
			e.write(t, file, whole.read(t, file))
		}
		e.write(t, "."+order[made]+".tmp", "half")
		e.open(t)
		for _, file := range order[:made] {
			if e.read(t, file) != whole.read(t, file) {
				t.Errorf("%s was replaced when %s was missing", file, order[made])
			}
		}
	}
}

func TestADirectoryThatCannotBeMadeIsNamed(t *testing.T) {
	e := newEnvironment(t)
	e.cfg.Dir = filepath.Join(e.cfg.Dir, "file", "pki")
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(e.cfg.Dir)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Dir(e.cfg.Dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(e.cfg); err == nil || !strings.Contains(err.Error(), filepath.Dir(e.cfg.Dir)) {
		t.Errorf("got %v", err)
	}
}

func TestNamesThatCannotBeFoundFailTheStart(t *testing.T) {
	e := newEnvironment(t)
	lost := errors.New("lost")
	e.cfg.Names = func() ([]string, error) { return nil, lost }
	if _, err := Open(e.cfg); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

func verify(t *testing.T, c *x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) {
	t.Helper()
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Errorf("%s: %v", c.Subject, err)
	}
}

// environment is a directory, a clock and a machine.
type environment struct {
	cfg   Config
	clock *clocktesting.FakeClock
	names []string
}

func newEnvironment(t *testing.T) *environment {
	dir := t.TempDir()
	e := &environment{clock: clocktesting.NewFakeClock(start), names: []string{"machine", "192.0.2.7"}}
	e.cfg = Config{
		Dir:        filepath.Join(dir, "pki"),
		Names:      func() ([]string, error) { return e.names, nil },
		ServiceIPs: []net.IP{net.IPv4(10, 0, 0, 1)},

		ConnectionFile:  filepath.Join(dir, "admin.svcconfig"),
		ControllersFile: filepath.Join(dir, "controller-manager.svcconfig"),
		Server:          "https://127.0.0.1:6443",
		Clock:           e.clock,
	}
	return e
}

func (e *environment) open(t *testing.T) *PKI {
	t.Helper()
	p, err := Open(e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (e *environment) path(file string) string { return filepath.Join(e.cfg.Dir, file) }

func (e *environment) certificate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	certs, err := cert.CertsFromFile(e.path(name + ".crt"))
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

func (e *environment) read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(e.path(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (e *environment) write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(e.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path(file), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *environment) remove(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		if err := os.Remove(e.path(file)); err != nil {
			t.Fatal(err)
		}
	}
}

// all returns the content of every file, that of the connection files under
// "connection" and "controllers".
func (e *environment) all(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(e.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		files[entry.Name()] = e.read(t, entry.Name())
	}
	for name, file := range map[string]string{"connection": e.cfg.ConnectionFile, "controllers": e.cfg.ControllersFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(content)
	}
	return files
}

func TestAnAgentsCertificateThatPassesForAnAPIServersIsReplaced(t *testing.T) {
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
	// As svc made it once: for the names of the machine and those of API servers.
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
		t.Error("it is kept")
	}
}
