package aggregation

import (
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestServices(t *testing.T) {
	lister := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, spec := range map[string]corev1.ServiceSpec{
		"api":      {Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.7", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
		"headless": {Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 443}}},
		"external": {Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"},
	} {
		if err := lister.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	byIP := Services{Lister: corev1listers.NewServiceLister(lister), Loopback: &url.URL{Scheme: "https", Host: "127.0.0.1:6443"}}
	byEndpoint := byIP
	byEndpoint.Endpoints = endpoints{}
	for _, tc := range []struct {
		name     string
		services Services
		service  string
		port     int32
		want     string
		err      string
	}{
		{name: "cluster IP", services: byIP, service: "api", port: 443, want: "https://10.0.0.7:443"},
		{name: "endpoint", services: byEndpoint, service: "api", port: 443, want: "https://192.0.2.5:8443"},
		{name: "external name", services: byIP, service: "external", port: 8443, want: "https://api.example.com:8443"},
		{name: "external name with endpoint routing", services: byEndpoint, service: "external", port: 8443, want: "https://api.example.com:8443"},
		{name: "this server", services: byIP, service: "kubernetes", port: 443, want: "https://127.0.0.1:6443"},
		{name: "this server with endpoint routing", services: byEndpoint, service: "kubernetes", port: 443, want: "https://127.0.0.1:6443"},
		{name: "another port of this server", services: byIP, service: "kubernetes", port: 80, err: `service "kubernetes" not found`},
		{name: "no cluster IP", services: byIP, service: "headless", port: 443, err: "cannot route to service"},
		{name: "no such port", services: byIP, service: "api", port: 80, err: "80"},
		{name: "no such service", services: byEndpoint, service: "absent", port: 443, err: `service "absent" not found`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.services.ResolveEndpoint("default", tc.service, tc.port)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error = %v, want one that contains %q", err, tc.err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("url = %v, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// endpoints has one slice for every Service.
type endpoints struct{}

func (endpoints) GetEndpointSlices(string, string) ([]*discoveryv1.EndpointSlice, error) {
	return []*discoveryv1.EndpointSlice{{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.5"}}},
	}}, nil
}
