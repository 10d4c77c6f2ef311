package apiserver_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/admission/serviceaccount"
	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/internal/footprint/leaks"
)

const adminToken = "secret"

// TestMain gives tests the feature gates of the product.
func TestMain(m *testing.M) {
	if err := gates.Set(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// running is a server that a test has started.
type running struct {
	url    string
	client *http.Client
	cancel context.CancelFunc
	done   chan error
}

// newOptions returns the options of a server on a free port, with an etcd of its own.
func newOptions(t *testing.T) (*options.Options, *etcd.Server) {
	t.Helper()
	// A short path, so that etcd's socket fits into it.
	dir, err := os.MkdirTemp("", "svc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	member, err := etcd.Start(t.Context(), etcd.Config{Dir: filepath.Join(dir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Stop)
	o := options.New()
	// No controller creates service accounts for the pods of the tests.
	o.Admission.DisablePlugins = []string{serviceaccount.PluginName}
	o.Etcd.Servers = member.Endpoints()
	o.SecureServing.ServerCert.CertDirectory = t.TempDir()
	if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	o.Authentication.TokenAuthFile = filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(o.Authentication.TokenAuthFile, []byte(adminToken+",admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return o, member
}

// start returns when the server is ready.
func start(t *testing.T, o *options.Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	server, err := apiserver.New(o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	r := &running{url: "https://" + server.Address(), cancel: cancel, done: make(chan error, 1)}
	r.client = newClient()
	ready := make(chan struct{})
	go func() { r.done <- server.Run(ctx, func() { close(ready) }) }()
	t.Cleanup(func() { r.stop(t) })
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("the server ended before it was ready: %v", err)
	}
	return r
}

func startNew(t *testing.T) *running {
	t.Helper()
	o, _ := newOptions(t)
	return start(t, o)
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
}

// stop ends the server, if it runs, and reports how.
func (r *running) stop(t *testing.T) {
	t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	r.client.CloseIdleConnections()
	if err := <-r.done; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// get reads a path as the administrator or, if anonymous is set, without a token.
func (r *running) get(t *testing.T, path string, anonymous bool) (int, string) {
	t.Helper()
	return r.do(t, http.MethodGet, path, "", anonymous)
}

func (r *running) do(t *testing.T, method, path, body string, anonymous bool) (int, string) {
	t.Helper()
	token := adminToken
	if anonymous {
		token = ""
	}
	return r.as(t, token, method, path, body)
}

// as makes a request with a token, if it is not empty.
func (r *running) as(t *testing.T, token, method, path, body string) (int, string) {
	t.Helper()
	code, content, err := r.try(t, token, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return code, content
}

// try is as, for a request that the server may abort.
func (r *running) try(t *testing.T, token, method, path, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

func TestAServerServesItsReleaseAndLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o, member := newOptions(t)
	began := time.Now()
	r := start(t, o)
	t.Logf("ready after %v", time.Since(began))

	if code, body := r.get(t, "/version", true); code != http.StatusOK || !strings.Contains(body, `"gitVersion": "v1.28.0+svc-`) {
		t.Errorf("/version answers %d %s", code, body)
	}
	checkHealth(t, r)
	for path, want := range map[string]struct{ anonymous, admin int }{
		"/api/v1/namespaces/default":                              {http.StatusForbidden, http.StatusOK},
		"/apis/flowcontrol.apiserver.k8s.io/v1beta3":              {http.StatusForbidden, http.StatusOK},
		"/apis/flowcontrol.apiserver.k8s.io/v1":                   {http.StatusForbidden, http.StatusNotFound},
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.apps":     {http.StatusForbidden, http.StatusOK},
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {http.StatusForbidden, http.StatusOK},
		"/nothing": {http.StatusForbidden, http.StatusNotFound},
	} {
		if code, body := r.get(t, path, true); code != want.anonymous {
			t.Errorf("%s answers an anonymous client with %d, want %d: %.200s", path, code, want.anonymous, body)
		}
		if code, body := r.get(t, path, false); code != want.admin {
			t.Errorf("%s answers the administrator with %d, want %d: %.200s", path, code, want.admin, body)
		}
	}

	r.stop(t)
	member.Stop()
	leaks.None(t, append(librariesLeak(), before)...)
}

// librariesLeak ignores the goroutines that the libraries leave: the process's
// flusher of klog, and those that end by themselves within seconds.
func librariesLeak() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"),
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
	}
}

// checkHealth expects the checks of the specification (document 2, section 4).
func checkHealth(t *testing.T, r *running) {
	t.Helper()
	for path, extra := range map[string][]string{"/readyz": {"shutdown", "etcd"}, "/livez": nil, "/healthz": {"etcd"}} {
		code, body := r.get(t, path+"?verbose", true)
		if code != http.StatusOK || !strings.HasSuffix(body, "\nhealthz check passed\n") {
			t.Errorf("%s answers %d %s", path, code, body)
		}
		for _, name := range append([]string{
			"ping", "log", "autoregister-completion",
			"poststarthook/start-svc-apiserver-admission-initializer",
			"poststarthook/generic-apiserver-start-informers",
			"poststarthook/start-apiextensions-informers",
			"poststarthook/start-apiextensions-controllers",
			"poststarthook/crd-informer-synced",
			"poststarthook/bootstrap-controller",
			"poststarthook/scheduling/bootstrap-system-priority-classes",
			"poststarthook/start-cluster-authentication-info-controller",
			"poststarthook/start-legacy-token-tracking-controller",
			"poststarthook/start-svc-aggregator-informers",
			"poststarthook/apiservice-registration-controller",
			"poststarthook/apiservice-status-available-controller",
			"poststarthook/svc-apiserver-autoregistration",
			"poststarthook/apiservice-openapi-controller",
		}, extra...) {
			if !strings.Contains(body, "[+]"+name+" ok\n") {
				t.Errorf("%s does not name %s:\n%s", path, name, body)
			}
		}
	}
}

func TestTwoServersOfAProcessAreIndependent(t *testing.T) {
	a, b := startNew(t), startNew(t)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	if code, body := a.do(t, http.MethodPost, configMaps, `{"metadata": {"name": "only-in-a"}}`, false); code != http.StatusCreated {
		t.Fatalf("create: %d %s", code, body)
	}
	if code, body := b.get(t, configMaps+"/only-in-a", false); code != http.StatusNotFound {
		t.Errorf("the other server has it too: %d %s", code, body)
	}
	a.stop(t)
	await(t, func() (int, string) { return b.get(t, "/readyz", true) }, http.StatusOK)
	if code, body := b.do(t, http.MethodPost, configMaps, `{"metadata": {"name": "after"}}`, false); code != http.StatusCreated {
		t.Errorf("create on the other server: %d %s", code, body)
	}
}

func TestAServerServesTheObjectsOfAnEarlierRun(t *testing.T) {
	o, _ := newOptions(t)
	first := start(t, o)
	const configMaps = "/api/v1/namespaces/default/configmaps"
	if code, body := first.do(t, http.MethodPost, configMaps, `{"metadata": {"name": "kept"}}`, false); code != http.StatusCreated {
		t.Fatalf("create: %d %s", code, body)
	}
	first.stop(t)

	var err error
	if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	second := start(t, o)
	if code, body := second.get(t, configMaps+"/kept", false); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
}

func TestAServerThatCannotBeMadeLeavesNoGoroutine(t *testing.T) {
	for rule, test := range map[string]struct {
		change func(o *options.Options)
		want   string
	}{
		"an invalid range":                 {func(o *options.Options) { o.Network.ServiceClusterIPRange = "x" }, "--service-cluster-ip-range"},
		"a token file that does not exist": {func(o *options.Options) { o.Authentication.TokenAuthFile = "/nowhere" }, "--token-auth-file"},
		"an unknown version":               {func(o *options.Options) { o.RuntimeConfig = map[string]string{"apps/v9": "true"} }, "apps/v9"},
		"a port that is taken": {func(o *options.Options) {
			o.SecureServing.BindPort = o.SecureServing.Listener.Addr().(*net.TCPAddr).Port
			o.SecureServing.Listener = nil
		}, "--secure-port"},
		"an invalid certificate": {func(o *options.Options) {
			o.SecureServing.ServerCert.CertKey.CertFile = o.Authentication.TokenAuthFile
			o.SecureServing.ServerCert.CertKey.KeyFile = o.Authentication.TokenAuthFile
		}, "--tls-cert-file"},
		"an admission configuration that does not exist": {func(o *options.Options) { o.Admission.ConfigFile = "/nowhere" }, "/nowhere"},
	} {
		t.Run(rule, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			o, member := newOptions(t)
			listener := o.SecureServing.Listener
			test.change(o)
			if _, err := apiserver.New(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			member.Stop()
			leaks.None(t, append(librariesLeak(), before,
				// The queues of controllers that were made, but never run.
				goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop"),
				goleak.IgnoreAnyFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"))...)
			if o.SecureServing.Listener == nil { // the test's own still holds the port
				_ = listener.Close()
			}
			if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
				_ = conn.Close()
				t.Error("the port is still open")
			}
		})
	}
}

func TestAlwaysAllowDoesNotAllowAnonymousRequests(t *testing.T) {
	o, _ := newOptions(t)
	o.Authorization.Modes = []string{"AlwaysAllow"}
	r := start(t, o)
	if code, body := r.get(t, "/api/v1/namespaces/default", true); code != http.StatusUnauthorized {
		t.Errorf("an anonymous client is answered with %d %s", code, body)
	}
	if code, body := r.get(t, "/api/v1/namespaces/default", false); code != http.StatusOK {
		t.Errorf("the administrator is answered with %d %s", code, body)
	}
}

func TestTheIndexOfOpenAPINamesEveryServedVersion(t *testing.T) {
	r := startNew(t)
	var groups struct {
		Groups []struct {
			Versions []struct{ GroupVersion string }
		}
	}
	_, body := r.get(t, "/apis", false)
	if err := json.Unmarshal([]byte(body), &groups); err != nil {
		t.Fatal(err)
	}
	var index struct{ Paths map[string]any }
	_, body = r.get(t, "/openapi/v3", false)
	if err := json.Unmarshal([]byte(body), &index); err != nil {
		t.Fatal(err)
	}
	want := []string{"api/v1"}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			want = append(want, "apis/"+v.GroupVersion)
		}
	}
	if len(want) < 15 {
		t.Errorf("only %v are served", want)
	}
	for _, gv := range want {
		if index.Paths[gv] == nil {
			t.Errorf("the index does not name %s: %s", gv, fmt.Sprint(index.Paths))
		}
	}
}

// dirOf returns the directory of a member, which contains its socket.
func dirOf(member *etcd.Server) string {
	return filepath.Dir(strings.TrimPrefix(member.Endpoints()[0], "unix://"))
}

func TestAServerStartsWithoutEtcdAndIsReadyWhenEtcdIs(t *testing.T) {
	o, member := newOptions(t)
	member.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server, err := apiserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, func() { close(ready) }) }()
	r := &running{url: "https://" + server.Address(), client: newClient()}
	defer r.client.CloseIdleConnections()
	if code, body := r.get(t, "/readyz", true); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed") {
		t.Errorf("/readyz answers %d %s", code, body)
	}
	if code, body := r.get(t, "/version", true); code != http.StatusOK {
		t.Errorf("/version answers %d %s", code, body)
	}
	again, err := etcd.Start(t.Context(), etcd.Config{Dir: dirOf(member)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the server ended before it was ready: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAServerEndsIfItCannotKeepOrReadAnObject(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects map[string]string
		says    string
	}{
		{"objects that it cannot keep", map[string]string{
			"services/default/a": `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default"}, "spec": {"trafficDistribution": "PreferClose"}}`,
			"apiextensions.k8s.io/customresourcedefinitions/things.example.com": `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
				"spec": {"group": "example.com", "versions": [{"name": "v1", "selectableFields": [{"jsonPath": ".spec.a"}]}]}}`,
		}, "services default/a (spec.trafficDistribution), customresourcedefinitions.apiextensions.k8s.io things.example.com (spec.versions[0].selectableFields); use --release=1.36 "},
		{"an object that it cannot read", map[string]string{"services/default/a": "garbage"}, "services default/a cannot be read: couldn't get version/kind; "},
		{"a definition that it cannot read", map[string]string{"apiextensions.k8s.io/customresourcedefinitions/things.example.com": "garbage"},
			"customresourcedefinitions.apiextensions.k8s.io things.example.com cannot be read: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, member := newOptions(t)
			test.objects["release"] = `{"release": "1.37", "svc": "0.9.0", "storageVersions": {}}`
			for key, value := range test.objects {
				if _, err := member.Client().Put(t.Context(), "/registry/"+key, value); err != nil {
					t.Fatal(err)
				}
			}
			server, err := apiserver.New(o)
			if err != nil {
				t.Fatal(err)
			}
			err = server.Run(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the server ended with %v", err)
			}
		})
	}
}

func TestAServerThatStopsEndsItsWatches(t *testing.T) {
	o, _ := newOptions(t)
	o.Requests.Timeout = time.Hour // how long it waits for other requests
	r := start(t, o)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/configmaps?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body) // however it ends
	}()
	r.stop(t)
	<-ended
}
