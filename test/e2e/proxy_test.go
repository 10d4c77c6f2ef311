package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// heard is a request as a server behind a proxy hears it.
type heard struct {
	Method, Path, Query, Body string
	Header                    http.Header
}

// mirror answers with what it has heard, and has pages that lead elsewhere; a
// connection that is upgraded gets everything back in capitals.
func mirror() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Heard", r.Method)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(heard{r.Method, r.URL.Path, r.URL.RawQuery, string(body), r.Header})
	})
	mux.Handle("/away", http.RedirectHandler("/pages/next", http.StatusFound))
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<html><body><a href="/pages/next">next</a></body></html>`)
	})
	mux.HandleFunc("/teapot", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "short and stout", http.StatusTeapot) })
	mux.HandleFunc("/loud", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "loud" || r.URL.RawQuery != "token=1" {
			http.Error(w, "what do you want of "+r.URL.String(), http.StatusBadRequest)
			return
		}
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: loud\r\n\r\n")
		both.Flush()
		for line, err := both.ReadString('\n'); err == nil; line, err = both.ReadString('\n') {
			fmt.Fprint(both, strings.ToUpper(line))
			both.Flush()
		}
	})
	return mux
}

// upgrade asks the suite's server to upgrade a connection to "loud", and
// returns what it answers, and the connection.
func upgrade(path string) (*http.Response, io.ReadWriter) {
	GinkgoHelper()
	config, err := rest.TLSConfigFor(server.Config)
	Expect(err).NotTo(HaveOccurred())
	conn, err := tls.Dial("tcp", strings.TrimPrefix(server.Config.Host, "https://"), config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { conn.Close() })
	Expect(conn.SetDeadline(time.Now().Add(launch.Patience))).To(Succeed())
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: svc\r\nConnection: Upgrade\r\nUpgrade: loud\r\n\r\n", path)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	Expect(err).NotTo(HaveOccurred())
	return resp, struct {
		io.Reader
		io.Writer
	}{reader, conn}
}

// withoutRedirects reads a path and follows nothing.
func withoutRedirects(path string) *http.Response {
	GinkgoHelper()
	c, err := rest.HTTPClientFor(server.Config)
	Expect(err).NotTo(HaveOccurred())
	once := *c
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := once.Get(server.Config.Host + path)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { resp.Body.Close() })
	return resp
}

// behind is a way through the API server to a mirror.
type behind struct {
	what string
	// path creates the target, and returns its proxy path without a trailing slash.
	path func(ctx SpecContext, k *sandbox) string
}

// ways to a mirror on this machine.
var proxies = []behind{
	{"a node's agent", func(ctx SpecContext, _ *sandbox) string {
		agent := newFakeAgent(ctx)
		agent.Handle("/", mirror())
		return "/api/v1/nodes/" + agent.node + "/proxy"
	}},
	{"another port of a node", func(ctx SpecContext, _ *sandbox) string {
		address := outerMirror(false)
		node := makeNode(ctx, netip.AddrPortFrom(address.Addr(), 1))
		return fmt.Sprintf("/api/v1/nodes/http:%s:%d/proxy", node, address.Port())
	}},
	{"a pod's first port", func(ctx SpecContext, k *sandbox) string {
		address := outerMirror(false)
		podAt(ctx, k, "web", address.Addr().String(), int32(address.Port()))
		return k.pathOf("web/proxy")
	}},
	{"a pod's port that speaks TLS", func(ctx SpecContext, k *sandbox) string {
		address := outerMirror(true)
		podAt(ctx, k, "web", address.Addr().String(), 1)
		return k.pathOf(fmt.Sprintf("https:web:%d/proxy", address.Port()))
	}},
	{"a service", func(ctx SpecContext, k *sandbox) string {
		address := outerMirror(false)
		podAt(ctx, k, "web", address.Addr().String(), 1)
		ports := []corev1.ServicePort{{Name: "web", Port: 80}}
		_, err := client.CoreV1().Services(k.Namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: ports}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.CoreV1().Endpoints(k.Namespace).Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: address.Addr().String(), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: k.Namespace, Name: "web"}}},
			Ports:     []corev1.EndpointPort{{Name: "web", Port: int32(address.Port())}},
		}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		return "/api/v1/namespaces/" + k.Namespace + "/services/web:80/proxy"
	}},
}

var _ = Describe("the proxy", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("does not proxy to a node that claims the API server's own address", func(ctx SpecContext) {
		own, err := netip.ParseAddrPort(strings.TrimPrefix(server.Config.Host, "https://"))
		Expect(err).NotTo(HaveOccurred())
		node := "/api/v1/nodes/" + makeNode(ctx, own) + "/proxy/"
		for _, path := range []string{"api/v1/nodes", "version"} {
			a := send(request{path: node + path})
			Expect(a.status).To(Equal(http.StatusServiceUnavailable), a.body)
			Expect(a.body).To(ContainSubstring("leads to an API server, not to an agent"))
		}
		resp, _ := upgrade(node + "api/v1/nodes?watch=true")
		Expect(resp.StatusCode).To(Equal(http.StatusInternalServerError))
	})

	for _, b := range proxies {
		Context("to "+b.what, func() {
			var path string
			BeforeEach(func(ctx SpecContext) { path = b.path(ctx, k) })

			It("forwards the request without the client's credentials", func() {
				for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
					a := send(request{
						method: method, path: path + "/a/b%20c/?x=1&path=2", body: "hello", contentType: "text/plain", header: map[string]string{
							"X-Remote-User": "mallory", "X-Remote-Group": "system:masters", "X-Own": "kept",
						},
					})
					Expect(a.status).To(Equal(http.StatusOK), "%s: %s", method, a.body)
					var got heard
					Expect(json.Unmarshal([]byte(a.body), &got)).To(Succeed(), a.body)
					Expect([]string{got.Method, got.Path, got.Query, got.Body}).To(Equal([]string{method, "/a/b c/", "x=1&path=2", "hello"}))
					Expect(got.Header.Get("X-Own")).To(Equal("kept"))
					Expect(got.Header.Get("X-Forwarded-Uri")).To(HavePrefix(path + "/a/b"))
					Expect(got.Header.Get("X-Forwarded-For")).NotTo(BeEmpty())
					for name := range got.Header {
						Expect(name).NotTo(Or(HavePrefix("X-Remote"), HavePrefix("Impersonate"), Equal("Authorization")))
					}
					Expect(a.header).NotTo(HaveKey("Access-Control-Allow-Origin"), "browsers must not be told that others may call the API server")
				}
				Expect(send(request{method: http.MethodHead, path: path + "/a"}).header.Get("X-Heard")).To(Equal("HEAD"))
				Expect(send(request{method: http.MethodGet, path: path + "/a"}).body).To(ContainSubstring(`"Path":"/a"`))
				Expect(send(request{method: http.MethodGet, path: path + "/"}).body).To(ContainSubstring(`"Path":"/"`))
			})

			It("redirects to its root with a trailing slash", func() {
				resp := withoutRedirects(path + "?x=1")
				Expect(resp.StatusCode).To(Equal(http.StatusMovedPermanently))
				Expect(resp.Header.Get("Location")).To(Equal(path + "/?x=1"))
			})

			It("does not follow redirects, and rewrites locations that leave the proxy", func() {
				resp := withoutRedirects(path + "/away")
				Expect(resp.StatusCode).To(Equal(http.StatusFound))
				Expect(resp.Header.Get("Location")).To(HaveSuffix(path + "/pages/next"))
				Expect(send(request{method: http.MethodGet, path: path + "/page"}).body).To(ContainSubstring(`href="` + path + `/pages/next"`))
			})

			It("forwards errors unchanged", func() {
				a := send(request{method: http.MethodGet, path: path + "/teapot"})
				Expect(a.status).To(Equal(http.StatusTeapot))
				Expect(a.body).To(Equal("short and stout\n"))
			})

			It("upgrades a connection after the backend's 101", func() {
				resp, conn := upgrade(path + "/loud?token=1")
				Expect(resp.StatusCode).To(Equal(http.StatusSwitchingProtocols))
				fmt.Fprintln(conn, "hello")
				Expect(bufio.NewReader(conn).ReadString('\n')).To(Equal("HELLO\n"))

				resp, _ = upgrade(path + "/loud")
				Expect(resp.StatusCode).To(Equal(http.StatusBadRequest))
				Expect(io.ReadAll(resp.Body)).To(BeEquivalentTo("what do you want of /loud\n"))
				resp, _ = upgrade(path + "/a")
				Expect(resp.StatusCode).To(Equal(http.StatusInternalServerError))
				Expect(io.ReadAll(resp.Body)).To(ContainSubstring("invalid upgrade response: status code 200"))
			})

			It("needs permission", func() {
				a := send(request{method: http.MethodGet, path: path + "/a", anonymous: true, token: aliceToken})
				Expect(a.asStatus().Message).To(ContainSubstring(`User "alice" cannot get resource`))
			})
		})
	}

	It("rejects nodes and pods that claim an address of this machine", func(ctx SpecContext) {
		podAt(ctx, k, "local", "127.0.0.1", 80)
		Expect(k.fails("", "get", "--raw", k.pathOf("local/proxy/"))).To(ContainSubstring("address not allowed"))
		node := makeNode(ctx, silence())
		Expect(k.fails("", "get", "--raw", "/api/v1/nodes/"+node+":80/proxy/")).To(ContainSubstring("address not allowed"))
		// A name is resolved when the connection is opened.
		k.run("patch", "node", node, "--subresource=status", "--type=merge", "-p", `{"status": {"addresses": [{"type": "Hostname", "address": "localhost"}]}}`)
		Expect(k.fails("", "get", "--raw", "/api/v1/nodes/"+node+":80/proxy/")).To(ContainSubstring("address not allowed"))
	})

	It("reports objects that do not exist", func() {
		k.run("create", "service", "clusterip", "lonely", "--tcp=80")
		k.pipe(`{"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "lonely"}}`, "create", "-f", "-")
		services := "/api/v1/namespaces/" + k.Namespace + "/services/"
		for path, want := range map[string]string{
			"/api/v1/nodes/none/proxy/":     `nodes "none" not found`,
			"/api/v1/nodes/a:b:c:d/proxy/":  `invalid node request "a:b:c:d"`,
			k.pathOf("none/proxy/"):         `pods "none" not found`,
			k.pathOf("a:b:c:d/proxy/"):      `invalid pod request "a:b:c:d"`,
			services + "none:80/proxy/":     `services "none" not found`,
			services + "a:b:c:d/proxy/":     `invalid service request "a:b:c:d"`,
			services + "lonely:81/proxy/":   `no service port 81 found for service "lonely"`,
			services + "lonely:80/proxy/":   `no endpoints available for service "lonely"`,
			services + "lonely:none/proxy/": `no endpoints available for service "lonely"`,
		} {
			Expect(k.fails("", "get", "--raw", path)).To(ContainSubstring(want), path)
		}
	})
})

// outerMirror serves a mirror at an address of this machine that others could
// have, until the spec ends.
func outerMirror(tls bool) netip.AddrPort {
	GinkgoHelper()
	ip := outerIP()
	if ip == nil {
		Skip("this machine has no address but loopback ones, to which the proxy does not lead")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
	Expect(err).NotTo(HaveOccurred())
	s := httptest.NewUnstartedServer(mirror())
	s.Listener.Close()
	s.Listener = listener
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	DeferCleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return netip.MustParseAddrPort(listener.Addr().String())
}

// podAt creates a pod with an address in its status and a declared port.
func podAt(ctx context.Context, k *sandbox, name, ip string, port int32) {
	GinkgoHelper()
	makePod(ctx, k.Namespace, name, corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: port}},
	}}}, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip})
}
