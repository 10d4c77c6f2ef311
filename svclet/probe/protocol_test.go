package probe

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// serveHealth serves the health service on a port, which it returns.
func serveHealth(t *testing.T, options ...grpc.ServerOption) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func TestAGRPCProbeUsesTLSWithoutVerificationIfItsModeSaysSo(t *testing.T) {
	// The certificate is for example.com, by an authority that is not trusted.
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	secure := serveHealth(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: certified.TLS.Certificates})))
	plain := serveHealth(t)
	m := newManager(new(journal), nil)
	for _, c := range []struct {
		name    string
		port    int32
		mode    *corev1.GRPCProbeMode
		seconds int32
		verdict verdict
		output  string
	}{
		{"TLS", secure, ptr.To(corev1.GRPCProbeModeTLS), 60, success, "service healthy"},
		{"Plaintext", plain, ptr.To(corev1.GRPCProbeModePlaintext), 60, success, "service healthy"},
		{"none", plain, nil, 60, success, "service healthy"},
		{"TLS to a server without", plain, ptr.To(corev1.GRPCProbeModeTLS), 1, failure, "timeout: failed to connect service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, m, 1, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: c.port, Mode: c.mode}}, func(probe *corev1.Probe) { probe.TimeoutSeconds = c.seconds })
			expect(t, got, c.verdict, c.output)
		})
	}
}

func TestAnHTTPProbeSpeaksTheProtocolOfItsSpec(t *testing.T) {
	var got *http.Request
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		switch r.URL.Path {
		case "/there":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/secure":
			http.Redirect(w, r, secure.URL, http.StatusFound)
		}
	})
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	old := httptest.NewServer(handler)
	defer old.Close()
	m := newManager(new(journal), nil)
	action := func(path string, server *httptest.Server, protocol *corev1.HTTPProtocol) *corev1.HTTPGetAction {
		return &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt(portOfServer(t, server)), Protocol: protocol,
			HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "example.com"}},
		}
	}
	for _, c := range []struct {
		name     string
		path     string
		protocol *corev1.HTTPProtocol
		want     string
	}{
		{"none", "/", nil, "HTTP/1.1"},
		{"HTTP1", "/", ptr.To(corev1.HTTPProtocolHTTP1), "HTTP/1.1"},
		{"HTTP2", "/", ptr.To(corev1.HTTPProtocolHTTP2), "HTTP/2.0"},
		{"HTTP2 after a redirect", "/there", ptr.To(corev1.HTTPProtocolHTTP2), "HTTP/2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, run(t, m, 1, corev1.ProbeHandler{HTTPGet: action(c.path, server, c.protocol)}, nil), success, "")
			if got.Proto != c.want || got.UserAgent() != "kube-probe/1.36" || (c.path == "/" && got.Host != "example.com") {
				t.Errorf("spoke %s as %s to %s, want %s", got.Proto, got.UserAgent(), got.Host, c.want)
			}
		})
	}
	t.Run("HTTP2 to a server without", func(t *testing.T) {
		expect(t, run(t, m, 1, corev1.ProbeHandler{HTTPGet: action("/", old, ptr.To(corev1.HTTPProtocolHTTP2))}, nil), failure, "")
	})
	t.Run("HTTP2 after a redirect to TLS", func(t *testing.T) {
		expect(t, run(t, m, 1, corev1.ProbeHandler{HTTPGet: action("/secure", server, ptr.To(corev1.HTTPProtocolHTTP2))}, nil), failure, "failed to verify certificate")
	})
	t.Run("a hook speaks HTTP/1", func(t *testing.T) {
		p := podOf(1, "c")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: action("/", server, ptr.To(corev1.HTTPProtocolHTTP2))}}
		if err := m.Hook(t.Context(), PostStart, p, &p.Spec.Containers[0], "id-c", "127.0.0.1"); err != nil || got.Proto != "HTTP/1.1" {
			t.Errorf("spoke %s: %v", got.Proto, err)
		}
	})
}
