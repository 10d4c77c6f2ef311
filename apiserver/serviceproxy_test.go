package apiserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// The source is kube-apiserver 1.36 and 1.37: services/proxy has read EndpointSlices since 1.37.
func TestAServiceIsProxiedByItsEndpointSlicesFromRelease137(t *testing.T) {
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	address := ownAddress(t)
	var err error
	if backend.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0")); err != nil {
		t.Fatal(err)
	}
	backend.Start()
	t.Cleanup(backend.Close)
	port := netip.MustParseAddrPort(backend.Listener.Addr().String()).Port()
	for minor, want := range map[int]int{36: http.StatusNotFound, 37: http.StatusOK} {
		r := release.Release{Major: 1, Minor: minor}
		t.Run(r.String(), func(t *testing.T) {
			s := newStage(t, "", func(o *options.Options) { o.Release = r })
			const namespace = "/api/v1/namespaces/default"
			s.must(http.MethodPost, namespace+"/services", `{"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}`)
			s.must(http.MethodPost, namespace+"/pods", `{"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}`)
			s.must(http.MethodPatch, namespace+"/pods/one/status", fmt.Sprintf(`{"status": {"podIP": %q, "podIPs": [{"ip": %q}]}}`, address, address))
			s.must(http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", fmt.Sprintf(`{
				"metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4", "ports": [{"port": %d}],
				"endpoints": [{"addresses": [%q], "targetRef": {"kind": "Pod", "namespace": "default", "name": "one"}}]}`, port, address))
			code, body := s.request("admin", http.MethodGet, namespace+"/services/web:80/proxy/", "", nil)
			if code != want || code == http.StatusOK && body != "hello" {
				t.Errorf("%d %s, want %d", code, body, want)
			}
		})
	}
}

// ownAddress returns an IPv4 address of this machine that pods may have.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr().String()
		}
	}
	t.Skip("this machine has no network")
	return ""
}
