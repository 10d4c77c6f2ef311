package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/pod"
)

// run runs a probe once against a pod at the loopback address.
func run(t *testing.T, m *Manager, port int, spec corev1.ProbeHandler, change func(*corev1.Probe)) outcome {
	t.Helper()
	p := podOf(port, "c")
	probe := &corev1.Probe{ProbeHandler: spec, TimeoutSeconds: 60}
	if change != nil {
		change(probe)
	}
	return m.probe(t.Context(), target{pod: p, container: &p.Spec.Containers[0], containerID: "id-c", ip: "127.0.0.1"}, probe)
}

func expect(t *testing.T, got outcome, verdict verdict, output string) {
	t.Helper()
	if got.verdict != verdict || !strings.Contains(got.output, output) || got.err != nil {
		t.Errorf("got %s %q %v, want %s %q", got.verdict, got.output, got.err, verdict, output)
	}
}

func portOfServer(t *testing.T, server *httptest.Server) int {
	t.Helper()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(to.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestHTTPProbeResultsByAnswer(t *testing.T) {
	mux := http.NewServeMux()
	for _, code := range []int{200, 204, 399, 400, 404, 500, 304} {
		mux.HandleFunc(fmt.Sprintf("/%d", code), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	mux.HandleFunc("/body", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) })
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "password", http.StatusServiceUnavailable) })
	mux.HandleFunc("/there", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/body?x=1", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://example.invalid/")
		w.WriteHeader(http.StatusFound)
		fmt.Fprint(w, "elsewhere")
	})
	release := make(chan struct{})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	m := newManager(new(journal), nil)

	for _, c := range []struct {
		path    string
		verdict verdict
		output  string
	}{
		{"/200", success, ""},
		{"/204", success, ""},
		{"body", success, "fine"},
		{"/body?x=1#y", success, "fine"},
		{"/399", warning, "Probe terminated redirects"},
		{"/304", warning, ""},
		{"/400", failure, "HTTP probe failed with statuscode: 400"},
		{"/500", failure, "HTTP probe failed with statuscode: 500"},
		{"/secret", failure, "HTTP probe failed with statuscode: 503"},
		{"/no%zz", failure, "HTTP probe failed with statuscode: 404"},
		{"/there", success, "fine"},
		{"/round", failure, "stopped after 10 redirects"},
		{"/away", warning, "Probe terminated redirects, Response body: elsewhere"},
		{"/slow", failure, "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"},
	} {
		t.Run(c.path, func(t *testing.T) {
			got := run(t, m, portOfServer(t, server), corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: c.path, Port: intstr.FromString("web")}}, func(probe *corev1.Probe) {
				if c.path == "/slow" {
					probe.TimeoutSeconds = 1
				}
			})
			expect(t, got, c.verdict, c.output)
		})
	}
	t.Run("the body is read up to 10 KiB", func(t *testing.T) {
		got := run(t, m, portOfServer(t, server), corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/long", Port: intstr.FromString("web")}}, nil)
		if len(got.output) != 10<<10 {
			t.Errorf("read %d bytes", len(got.output))
		}
	})
}

func TestAnHTTPProbeSendsTheHeadersOfItsSpec(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
	defer server.Close()
	m := newManager(new(journal), nil)
	for _, c := range []struct {
		name    string
		headers []corev1.HTTPHeader
		want    map[string]string
		host    string
	}{
		{"none", nil, map[string]string{"User-Agent": "kube-probe/1.36", "Accept": "*/*", "Accept-Encoding": ""}, "127.0.0.1:"},
		{"its own", []corev1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "X-A", Value: "1"}, {Name: "accept", Value: "text/plain"}},
			map[string]string{"User-Agent": "me", "X-A": "1", "Accept": "text/plain"}, "127.0.0.1:"},
		{"no Accept", []corev1.HTTPHeader{{Name: "Accept", Value: ""}}, map[string]string{"Accept": ""}, "127.0.0.1:"},
		{"a host", []corev1.HTTPHeader{{Name: "Host", Value: "example.com"}}, nil, "example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, run(t, m, 1, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(portOfServer(t, server)), HTTPHeaders: c.headers}}, nil), success, "")
			for name, value := range c.want {
				if got.Header.Get(name) != value {
					t.Errorf("%s is %q, want %q", name, got.Header.Get(name), value)
				}
			}
			if !strings.HasPrefix(got.Host, c.host) || !got.Close {
				t.Errorf("host %q, closes %t", got.Host, got.Close)
			}
		})
	}
}

func TestAnHTTPSProbeAcceptsAnyCertificateAndProtocol(t *testing.T) {
	var proto string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { proto = r.Proto }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	action := &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Port: intstr.FromInt(portOfServer(t, server))}
	expect(t, run(t, newManager(new(journal), nil), 1, corev1.ProbeHandler{HTTPGet: action}, nil), success, "")
	if proto != "HTTP/2.0" {
		t.Errorf("spoke %s", proto)
	}
}

func TestAnIncompleteAnswerIsIgnored(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "short")
	}))
	defer server.Close()
	got := run(t, newManager(new(journal), nil), 1, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(portOfServer(t, server))}}, nil)
	if got.verdict != failure || !errors.Is(got.err, io.ErrUnexpectedEOF) {
		t.Errorf("got %+v", got)
	}
}

func TestATCPProbeSucceedsIfThePortIsOpen(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	m := newManager(new(journal), nil)
	probe := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
	expect(t, run(t, m, port, probe, nil), success, "")
	probe.TCPSocket.Host = "localhost"
	expect(t, run(t, m, port, probe, nil), success, "")
	listener.Close()
	probe.TCPSocket.Host = ""
	expect(t, run(t, m, port, probe, nil), failure, fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port))
}

func TestAGRPCProbeCallsTheHealthService(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The server may still handle the slow request.
	var agent atomic.Value
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		agent.Store(md.Get("user-agent")[0])
		if request.(*grpc_health_v1.HealthCheckRequest).GetService() == "slow" {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return handle(ctx, request)
	}))
	answers := health.NewServer()
	grpc_health_v1.RegisterHealthServer(server, answers)
	answers.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	other := grpc.NewServer()
	done := make(chan error, 2)
	go func() { done <- server.Serve(listener) }()
	go func() { done <- other.Serve(bare) }()
	defer func() {
		server.Stop()
		other.Stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}()

	m := newManager(new(journal), nil)
	port, barePort := int32(listener.Addr().(*net.TCPAddr).Port), int32(bare.Addr().(*net.TCPAddr).Port)
	for _, c := range []struct {
		name    string
		port    int32
		service *string
		seconds int32
		verdict verdict
		output  string
	}{
		{"serving", port, nil, 60, success, "service healthy"},
		{"a service", port, ptr.To(""), 60, success, "service healthy"},
		{"not serving", port, ptr.To("down"), 60, failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", port, ptr.To("none"), 60, failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"slow", port, ptr.To("slow"), 5, failure, "timeout: health rpc did not complete within 5s"}, // in which the connection is made
		{"no health service", barePort, nil, 60, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{"no server", 1, nil, 1, failure, `timeout: failed to connect service "127.0.0.1:1" within 1s: context deadline exceeded`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, m, 1, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: c.port, Service: c.service}}, func(probe *corev1.Probe) { probe.TimeoutSeconds = c.seconds })
			expect(t, got, c.verdict, c.output)
		})
	}
	if got := agent.Load().(string); !strings.HasPrefix(got, "kube-probe/1.36 ") {
		t.Errorf("user agent %q", got)
	}
}

func TestExecProbeResultsByExitCode(t *testing.T) {
	for _, c := range []struct {
		name    string
		stdout  string
		code    int32
		err     error
		verdict verdict
		output  string
	}{
		{"success", "fine", 0, nil, success, "fine+"},
		{"failure", "bad", 3, nil, failure, "bad+"},
		{"10 KiB of output", strings.Repeat("x", 1<<20), 1, nil, failure, strings.Repeat("x", 10<<10)},
		{"too slow", "", 0, status.Error(codes.DeadlineExceeded, "timeout 1s exceeded"), failure, `command timed out: "sh -c env val $(NO)" timed out after 1s`},
		{"too slow for cri-client", "", 0, fmt.Errorf("run: %w", fmt.Errorf("%w: after 1s", cri.ErrCommandTimedOut)), failure, "command timed out"},
		{"too slow for the client", "", 0, fmt.Errorf("exec: %w", context.DeadlineExceeded), failure, "command timed out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newManager(new(journal), func(_ context.Context, id string, command []string, timeout time.Duration) ([]byte, []byte, int32, error) {
				if got := strings.Join(command, " "); id != "id-c" || got != "sh -c env val $(NO)" || timeout != time.Second {
					t.Errorf("ran %q in %s within %s", got, id, timeout)
				}
				return []byte(c.stdout), []byte("+"), c.code, c.err
			})
			p := podOf(1, "c")
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "VAR", Value: "val"}}
			got := m.probe(t.Context(), target{pod: p, container: &p.Spec.Containers[0], containerID: "id-c"},
				&corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "env", "$(VAR)", "$(NO)"}}}})
			expect(t, got, c.verdict, c.output)
			if len(got.output) > 10<<10 {
				t.Errorf("kept %d bytes", len(got.output))
			}
		})
	}
}

func TestAProbeThatCannotRunHasAnError(t *testing.T) {
	m := newManager(new(journal), nil)
	web := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
	for _, c := range []struct {
		name  string
		probe corev1.ProbeHandler
		port  int
		ip    string
		want  string
	}{
		{"no handler", corev1.ProbeHandler{}, 1, "127.0.0.1", "missing probe handler for p_ns(uid):c"},
		{"port out of range", web, 70000, "127.0.0.1", "invalid port number: 70000"},
		{"no such port", corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("nope")}}, 1, "127.0.0.1", `strconv.Atoi: parsing "nope": invalid syntax`},
		{"no address", web, 1, "", "the pod has no IP address"},
		{"no address for gRPC", corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}, 1, "", "the pod has no IP address"},
		{"no URL", corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "a b", Port: intstr.FromInt(1)}}, 1, "127.0.0.1", `parse "http://a%20b:1": invalid URL escape "%20"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := podOf(c.port, "c")
			got := m.probe(t.Context(), target{pod: p, container: &p.Spec.Containers[0], ip: c.ip}, &corev1.Probe{ProbeHandler: c.probe})
			if got.verdict != unknown || got.err == nil || got.err.Error() != c.want {
				t.Errorf("got %s %v, want %s", got.verdict, got.err, c.want)
			}
		})
	}
}

func TestEachFailureAndWarningHasAnEvent(t *testing.T) {
	p := podOf(1, "c")
	on := target{pod: p, container: &p.Spec.Containers[0]}
	for _, c := range []struct {
		found outcome
		want  []string
	}{
		{outcome{verdict: success, output: "x"}, nil},
		{outcome{verdict: warning, output: "Probe terminated redirects, Response body: x"},
			[]string{"Warning ProbeWarning p/c: Readiness probe warning: Probe terminated redirects, Response body: x"}},
		{failed("HTTP probe failed with statuscode: 500"), []string{"Warning Unhealthy p/c: Readiness probe failed: HTTP probe failed with statuscode: 500"}},
		{outcome{verdict: failure, err: errors.New("x")}, []string{"Warning Unhealthy p/c: Readiness probe errored and resulted in failure state: x"}},
	} {
		var j journal
		newManager(&j, nil).record(on, pod.Readiness, c.found)
		events, _ := j.take()
		want(t, "events", events, c.want...)
	}
}
