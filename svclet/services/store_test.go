package services_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/svclet/services"
)

func service(namespace, name string, ips ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIPs: ips}}
}

func slice(name, of string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}}}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// owners are the names of the services that have an address.
func owners(s *services.Store, address string) []string {
	var names []string
	for _, key := range s.ByAddress(netip.MustParseAddr(address)) {
		names = append(names, key.Name)
	}
	return names
}

func TestAStoreIsCompleteWithBothKinds(t *testing.T) {
	s := services.New()
	changes := s.Follow()
	must(t, s.Services().Replace([]any{service("shop", "web")}, ""))
	if _, synced := changes.Take(); synced || s.Synced() {
		t.Error("complete without endpoint slices")
	}
	must(t, s.EndpointSlices().Replace(nil, ""), s.EndpointSlices().Replace(nil, ""))
	<-s.Complete()
	if taken, synced := changes.Take(); !synced || !taken[services.Key{Namespace: "shop", Name: "web"}] {
		t.Error("the change before is lost")
	}
}

func TestAnAddressHasTheServicesThatHaveIt(t *testing.T) {
	s := services.New()
	must(t, s.Services().Add(service("shop", "web", "10.96.0.1", "fd00:0:0:0::1")), s.Services().Add(service("shop", "db", "None")),
		s.EndpointSlices().Add(slice("web-1", "web", "10.244.0.5", "fd00:244:0::0005")), s.EndpointSlices().Add(slice("db-1", "db", "10.244.0.5")),
		s.EndpointSlices().Add(slice("web-2", "web", "10.244.0.5")))
	for address, want := range map[string][]string{
		"10.96.0.1": {"web"}, "fd00::1": {"web"}, "10.244.0.5": {"db", "web"}, "fd00:244::5": {"web"}, "10.96.0.9": nil,
	} {
		if got := owners(s, address); !slices.Equal(got, want) {
			t.Errorf("%s: %s", address, got)
		}
	}
	// As long as one of them has it.
	must(t, s.EndpointSlices().Delete(slice("web-1", "web")))
	if got := owners(s, "10.244.0.5"); !slices.Equal(got, []string{"db", "web"}) {
		t.Error(got)
	}
	must(t, s.EndpointSlices().Update(slice("web-2", "db", "10.244.0.6")), s.Services().Update(service("shop", "web", "10.96.0.2")))
	for address, want := range map[string][]string{"10.244.0.5": {"db"}, "fd00:244::5": nil, "10.244.0.6": {"db"}, "10.96.0.1": nil, "10.96.0.2": {"web"}} {
		if got := owners(s, address); !slices.Equal(got, want) {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestAddressesAreReadAsTheAPIAcceptsThem(t *testing.T) {
	for text, want := range map[string]string{"10.0.0.1": "10.0.0.1", "010.0.0.01": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "FD00:0::1": "fd00::1", "None": "", "fe80::1%eth0": "", "": ""} {
		got, ok := services.Address(text)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %s, %t; want %q", text, got, ok, want)
		}
	}
}

func TestANamespaceIsThereWithItsServices(t *testing.T) {
	s := services.New()
	must(t, s.Services().Replace([]any{service("shop", "web"), service("shop", "db")}, ""))
	must(t, s.Services().Delete(service("shop", "web")))
	if !s.HasNamespace("shop") || s.HasNamespace("other") {
		t.Error("a namespace with a service is there, one without is not")
	}
	must(t, s.Services().Replace(nil, ""))
	if s.HasNamespace("shop") {
		t.Error("a namespace without services is there")
	}
}

func TestAnotherKindIsRefused(t *testing.T) {
	s := services.New()
	if s.Services().Add(&corev1.Pod{}) == nil || s.EndpointSlices().Replace([]any{service("shop", "web")}, "") == nil {
		t.Error("no error")
	}
}
