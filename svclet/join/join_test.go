package join

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	testclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/fleetaddress"
	"svc.dev/svc/internal/jointoken"
)

const id, key = "abcdef", "0123456789abcdef"

// cluster serves the cluster's information with these data, which change sets.
func cluster(t *testing.T, change func(data map[string]string)) (*httptest.Server, Discovery) {
	t.Helper()
	data := map[string]string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-public/configmaps/cluster-info" || r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(&corev1.ConfigMap{Data: data})
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	data["kubeconfig"] = string(content)
	if data["jws-kubeconfig-"+id], err = jointoken.Sign(string(content), id, key); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(data)
	}
	return server, Discovery{
		Server: server.URL, TokenID: id, TokenKey: key, Pins: []string{"sha256:" + strings.Repeat("0", 64), jointoken.Pin(server.Certificate())},
		Clock: testclock.NewFakeClock(time.Now()),
	}
}

func TestTheAuthorityIsThatOfTheSignedInformation(t *testing.T) {
	server, d := cluster(t, nil)
	ca, err := d.Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(ca); block == nil || string(block.Bytes) != string(server.Certificate().Raw) {
		t.Errorf("got %s", ca)
	}
}

func TestAnotherClusterIsRefusedAtOnce(t *testing.T) {
	for _, test := range []struct {
		rule   string
		data   func(map[string]string)
		change func(*Discovery)
		want   string
	}{
		{"the signature is by another key", nil, func(d *Discovery) { d.TokenKey = "fedcba9876543210" }, "the signature of its information is not the token's"},
		{"the information was changed", func(data map[string]string) { data["kubeconfig"] += "\n" }, nil, "the signature of its information is not the token's"},
		{"the authority has another key", nil, func(d *Discovery) { d.Pins = d.Pins[:1] }, "its authority has another public key"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			_, d := cluster(t, test.data)
			if test.change != nil {
				test.change(&d)
			}
			if _, err := d.Authority(t.Context()); !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestTheSignatureIsAwaitedForAMinute(t *testing.T) {
	_, d := cluster(t, func(data map[string]string) { delete(data, "jws-kubeconfig-"+id) })
	clock := testclock.NewFakeClock(time.Now())
	d.Clock = clock
	var told []string
	d.Retrying = func(err error, limit time.Duration) { told = append(told, fmt.Sprint(limit, ": ", err)) }
	failed := make(chan error, 1)
	go func() { _, err := d.Authority(t.Context()); failed <- err }()
	for {
		select {
		case err := <-failed:
			if err == nil || !strings.Contains(err.Error(), "the token abcdef has not signed the cluster's information") || !strings.HasSuffix(err.Error(), "tried for 1m0s") {
				t.Errorf("got %v", err)
			}
			if len(told) != 1 || !strings.HasPrefix(told[0], "1m0s: the token abcdef has not signed the cluster's information") {
				t.Errorf("told %q", told)
			}
			return
		default:
			if clock.HasWaiters() {
				clock.Step(discoveryTimeout / 4)
			}
		}
	}
}

func TestANodeReportsTheReleaseOfAnOlderServer(t *testing.T) {
	for _, test := range []struct{ server, want string }{
		{"v1.28.0", "v1.28.0"},
		{"v1.28.3+k3s1", "v1.28.3"},
		{"v1.36.2", ""},
		{"v1.37.0", ""},
		{"unknown", "the version of the API server: "},
		{"", "the server has asked for the client to provide credentials"},
	} {
		t.Run(test.server, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if test.server == "" || r.URL.Path != "/version" || r.Header.Get("Authorization") != "Bearer "+id+"."+key {
					w.WriteHeader(http.StatusUnauthorized)
				}
				_ = json.NewEncoder(w).Encode(version.Info{GitVersion: test.server})
			}))
			t.Cleanup(server.Close)
			files := Files{Dir: t.TempDir()}
			if err := files.Write(server.URL, id+"."+key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})); err != nil {
				t.Fatal(err)
			}
			got, err := OlderRelease(t.Context(), files.Bootstrap(), "v1.36.0")
			if err != nil {
				got = err.Error()
			}
			if !strings.HasPrefix(got, test.want) || got != "" && test.want == "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestFilesOfAMachineThatHasJoined(t *testing.T) {
	files := Files{Dir: filepath.Join(t.TempDir(), "svclet")}
	if err := files.Write("https://192.0.2.1:6443", id+"."+key, []byte("authority")); err != nil {
		t.Fatal(err)
	}
	api, err := clientcmd.BuildConfigFromFlags("", files.Bootstrap())
	if err != nil || api.Host != "https://192.0.2.1:6443" || api.BearerToken != id+"."+key || string(api.CAData) != "authority" {
		t.Errorf("the bootstrap file has %v, %v", api, err)
	}
	if info, err := os.Stat(files.Bootstrap()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token is in a file with mode %v, %v", info.Mode(), err)
	}
	if files.Joined() {
		t.Error("a machine without a certificate counts as joined")
	}
	// A file is replaced by one that is complete, so that a crash leaves no empty one.
	old, err := os.Open(files.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := files.Write("https://192.0.2.2:6443", id+"."+key, nil); err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(old); err != nil || !strings.Contains(string(content), "192.0.2.1") {
		t.Errorf("the file that was there before is written to: %s, %v", content, err)
	}
	own := []byte("apiVersion: svclet.config.k8s.io/v1beta1\nkind: SvcletConfiguration\nmaxPods: 5\n")
	for _, file := range []string{files.Configuration(), files.Connection()} {
		if err := os.WriteFile(file, own, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !files.Joined() {
		t.Error("a machine with a connection file counts as not joined")
	}
	if err := files.Write("https://192.0.2.1:6443", id+"."+key, nil); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(files.Configuration()); err != nil || string(kept) != string(own) {
		t.Errorf("the administrator's configuration is now %s, %v", kept, err)
	}
	args := files.Arguments("/root dir", nil)
	if err := files.WriteArguments(args); err != nil {
		t.Fatal(err)
	}
	if read, err := files.ReadArguments(); err != nil || !slices.Equal(read, args) {
		t.Errorf("the command line is read as %q, %v", read, err)
	}
	if err := files.Remove(); err != nil {
		t.Fatal(err)
	}
	if kept, err := filepath.Glob(filepath.Join(files.Dir, "*")); err != nil || !slices.Equal(kept, []string{files.Configuration()}) {
		t.Errorf("of an administrator's files, with the configuration, %v are left, %v", kept, err)
	}
	if err := os.Remove(files.Configuration()); err != nil {
		t.Fatal(err)
	}
	if err := files.Write("https://192.0.2.1:6443", id+"."+key, nil); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(files.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := files.Remove(); err != nil {
		t.Errorf("a second removal: %v", err)
	}
}

func TestAMachineOfAFleetAsksForNoServingCertificate(t *testing.T) {
	for server, want := range map[string]bool{"https://192.0.2.1:6443": true, "https://192.0.2.1:6443" + fleetaddress.Path("fleet.svc.dev", "default"): false} {
		files := Files{Dir: t.TempDir()}
		if err := files.Write(server, id+"."+key, []byte("authority")); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(files.Configuration())
		if err != nil || strings.Contains(string(content), "serverTLSBootstrap: true") != want || !strings.Contains(string(content), "rotateCertificates: true") {
			t.Errorf("%s: the configuration is %s, %v", server, content, err)
		}
	}
}

func TestAConnectionFileIsCopiedWithWhatItNames(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("ca", "authority")
	connection := file("connection", `
apiVersion: v1
kind: Config
clusters:
- {name: fleet, cluster: {server: "https://192.0.2.1:6443/apis/fleet", certificate-authority: ca}}
- {name: other, cluster: {server: "https://192.0.2.9"}}
users:
- {name: machine, user: {token: secret}}
- {name: admin, user: {token: admin}}
contexts:
- {name: fleet, context: {cluster: fleet, user: machine}}
- {name: other, context: {cluster: other, user: admin}}
current-context: fleet
`)
	files := Files{Dir: filepath.Join(dir, "svclet")}
	if err := files.Connect(connection); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(files.Connection())
	if err != nil || len(config.Clusters) != 1 || len(config.AuthInfos) != 1 {
		t.Fatalf("%v, %v: want the current context alone", config, err)
	}
	api, err := clientcmd.BuildConfigFromFlags("", files.Connection())
	if err != nil || api.Host != "https://192.0.2.1:6443/apis/fleet" || api.BearerToken != "secret" || string(api.CAData) != "authority" {
		t.Errorf("the connection file has %v, %v", api, err)
	}
	if !files.Joined() {
		t.Error("the machine counts as not joined")
	}
	if line := strings.Join(files.ConnectedArguments("/root", nil), " "); strings.Contains(line, "bootstrap") {
		t.Errorf("svclet would wait for a certificate: %s", line)
	}
	if err := (Files{Dir: files.Dir}).Connect(file("empty", "apiVersion: v1\nkind: Config\n")); err == nil {
		t.Error("a connection file without a cluster is accepted")
	}
}

func TestUnitQuotesTheCommandLine(t *testing.T) {
	unit := Unit("/opt/my svc/svclet", Files{Dir: "/etc/svclet"}.Arguments("/var/lib/svclet", []string{"--node-labels=a=100%"}))
	want := `ExecStart="/opt/my svc/svclet" --config=/etc/svclet/svclet.yaml --svcconfig=/etc/svclet/node.svcconfig` +
		" --root-dir=/var/lib/svclet --cert-dir=/var/lib/svclet/pki --service-proxy --network-policy --dns --pod-network=host-routes --bootstrap-svcconfig=/etc/svclet/bootstrap.svcconfig --node-labels=a=100%%\n"
	if !strings.Contains(unit, want) || !strings.Contains(unit, "\nKillMode=process\n") {
		t.Errorf("got %s", unit)
	}
}

func TestTheCommandLineOfAUnitIsReadAsItWasWritten(t *testing.T) {
	for _, more := range []string{
		"", " ", "--root-dir=/my data", "--x=a\tb", `--x="quoted"`, "--x='single'", "--x=100%", "--x=%h%%", "--x=$HOME$$", "--x=a;b", ";",
		`--x=back\slash`, `--x=two\\ and one\`, `\`, `"`, "$", "%", "--x=é",
	} {
		for _, args := range [][]string{{more}, {"--first", more, "--last"}, {more, more}} {
			for _, program := range []string{"/usr/local/bin/svclet", "/opt/my svc/100%/svclet"} {
				if got, err := UnitArguments(Unit(program, args)); err != nil || !slices.Equal(got, args) {
					t.Errorf("of %q: %q, %v", args, got, err)
				}
			}
		}
	}
	for _, command := range []string{
		"", "ExecStart=", "ExecStart=/bin/sh -c 'svclet --dns'", "ExecStart=/svclet --x=%h", "ExecStart=/svclet --x=$HOME", "ExecStart=/svclet  --x",
		`ExecStart=/svclet "--x`, "ExecStart=/svclet \\\n--x", `ExecStart=/svclet --x=\x41`, "ExecStart=/svclet --x=%", "ExecStart=/svclet --a\nExecStart=/svclet --b",
	} {
		if got, err := UnitArguments("[Service]\n" + command + "\nRestart=always\n"); err == nil {
			t.Errorf("%q is read as %q", command, got)
		}
	}
}

func TestTheFilesOfAJoinAreThoseOfItsCommandLine(t *testing.T) {
	for _, dir := range []string{"/etc/svclet", "/my files/100%"} {
		args := append([]string{"--version=v1.28.0"}, Files{Dir: dir}.Arguments("/root", []string{"--config=/other"})...)
		if got, found := FilesOf(args); !found || got.Dir != dir {
			t.Errorf("of the join with %s: %+v, %t", dir, got, found)
		}
	}
	for _, args := range [][]string{
		nil, {"--config=/etc/svclet/svclet.yaml"}, {"--config=/etc/svclet/svclet.yaml", "--svcconfig=/root/node.svcconfig"},
		{"--config=/etc/svclet/mine.yaml", "--svcconfig=/etc/svclet/node.svcconfig"}, {"--config=/etc/svclet/svclet.yaml.old", "--svcconfig=/etc/svclet/node.svcconfig"},
	} {
		if got, found := FilesOf(args); found {
			t.Errorf("of %q: %+v", args, got)
		}
	}
}

func TestPinIsOfThePublicKey(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	renewed := &x509.Certificate{RawSubjectPublicKeyInfo: server.Certificate().RawSubjectPublicKeyInfo}
	if pin := jointoken.Pin(renewed); pin != jointoken.Pin(server.Certificate()) || len(pin) != len("sha256:")+64 {
		t.Errorf("got %s", pin)
	}
}
