package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestServersPublishEachOtherUntilTheirLeasesEnd(t *testing.T) {
	client := fake.NewClientset()
	// The servers' clocks differ by an hour.
	clockA, clockB := clocktesting.NewFakeClock(noon), clocktesting.NewFakeClock(noon.Add(time.Hour))
	a := NewEndpoints(client, clockA, netip.MustParseAddrPort("192.0.2.1:6443"), true)
	b := NewEndpoints(client, clockB, netip.MustParseAddrPort("[::ffff:192.0.2.2]:6443"), true)
	pass := func(d time.Duration, alive ...*Endpoints) {
		t.Helper()
		clockA.Step(d)
		clockB.Step(d)
		for _, e := range alive {
			if err := e.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass(0, a)
	expect(t, client, "192.0.2.1 on 6443")
	pass(EndpointsInterval, a, b, a)
	expect(t, client, "192.0.2.1,192.0.2.2 on 6443")
	pass(EndpointsInterval, a, b)
	// b dies; a removes it when b's lease has not changed for its duration.
	pass(EndpointsInterval, a)
	pass(EndpointsInterval, a)
	expect(t, client, "192.0.2.1,192.0.2.2 on 6443")
	pass(EndpointsInterval, a)
	pass(EndpointsInterval, a)
	expect(t, client, "192.0.2.1 on 6443")
	// b runs again: its lease was deleted, and it creates another.
	if err := b.Ensure(t.Context()); err == nil {
		t.Error("b did not notice that its lease was removed")
	}
	pass(EndpointsInterval, b, a)
	expect(t, client, "192.0.2.1,192.0.2.2 on 6443")
	if err := a.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, client, "192.0.2.2 on 6443")
	if err := b.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, client, "")
}

func TestAServerWithoutSharedStorageHasNoLeaseAndKeepsItsEndpoint(t *testing.T) {
	client := fake.NewClientset()
	e := NewEndpoints(client, clocktesting.NewFakeClock(noon), netip.MustParseAddrPort("192.0.2.1:6443"), false)
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, client, "192.0.2.1 on 6443")
	if slices.Contains(writes(client), "create leases") {
		t.Error("a lease was written")
	}
	if e.Step().Stop != nil {
		t.Error("the endpoint is removed at the end")
	}
}

func TestObjectsOfTheServiceThatAreDeletedAreThereAgainAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		steps := Steps(Config{
			Client: client, Clock: clock.RealClock{}, Advertise: netip.MustParseAddrPort("192.0.2.1:6443"),
			Service: Service{ClusterIP: netip.MustParseAddr("10.0.0.1"), Port: 443, TargetPort: 6443},
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, step := range steps {
			go func() {
				if step.First(ctx, clock.RealClock{}) == nil {
					step.Keep(ctx, clock.RealClock{})
				}
			}()
		}
		services, endpoints, endpointSlices := client.CoreV1().Services("default"), client.CoreV1().Endpoints("default"), client.DiscoveryV1().EndpointSlices("default")
		for _, after := range []time.Duration{time.Second, time.Minute} {
			time.Sleep(after)
			if err := errors.Join(
				services.Delete(ctx, "kubernetes", metav1.DeleteOptions{}),
				endpoints.Delete(ctx, "kubernetes", metav1.DeleteOptions{}),
				endpointSlices.Delete(ctx, "kubernetes", metav1.DeleteOptions{}),
			); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if _, err := services.Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			expect(t, client, "192.0.2.1 on 6443")
		}
	})
}

func TestServersThatShareAStorageRepairTheirEndpointsEachTime(t *testing.T) {
	client := fake.NewClientset()
	e := NewEndpoints(client, clocktesting.NewFakeClock(noon), netip.MustParseAddrPort("192.0.2.1:6443"), true)
	for range 2 {
		if err := e.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, client, "192.0.2.1 on 6443")
		if err := errors.Join(
			client.CoreV1().Endpoints("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}),
			client.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}),
		); err != nil {
			t.Fatal(err)
		}
	}
}

// An idle server asks often: it must not ask etcd.
func TestTheServiceAndItsEndpointsAreReadFromTheWatchCache(t *testing.T) {
	client := fake.NewClientset()
	e := NewEndpoints(client, clocktesting.NewFakeClock(noon), netip.MustParseAddrPort("192.0.2.1:6443"), false)
	for range 2 {
		client.ClearActions()
		if err := errors.Join(e.Ensure(t.Context()), ensureBasics(t.Context(), client, Service{Port: 443}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	var reads []string
	for _, action := range client.Actions() {
		var version string
		switch action := action.(type) {
		case clienttesting.GetActionImpl:
			version = action.GetOptions.ResourceVersion
		case clienttesting.ListActionImpl:
			version = action.ListOptions.ResourceVersion
		}
		if reads = append(reads, action.GetResource().Resource); version != "0" {
			t.Errorf("%s %s at the version %q", action.GetVerb(), action.GetResource().Resource, version)
		}
	}
	for _, resource := range []string{"services", "endpoints", "endpointslices"} {
		if !slices.Contains(reads, resource) {
			t.Errorf("%s are not read", resource)
		}
	}
}

func TestEndpointsAreRepaired(t *testing.T) {
	client := fake.NewClientset(
		&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"}, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "203.0.113.9"}}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}}, AddressType: discoveryv1.AddressTypeIPv6},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes", discoveryv1.LabelManagedBy: leaseValue}}, AddressType: discoveryv1.AddressTypeIPv4},
	)
	e := NewEndpoints(client, clocktesting.NewFakeClock(noon), netip.MustParseAddrPort("192.0.2.1:6443"), false)
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, client, "192.0.2.1 on 6443")
}

func TestFamiliesAndPortsHaveTheirOwnSlices(t *testing.T) {
	servers := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443"), netip.MustParseAddrPort("192.0.2.2:7443"), netip.MustParseAddrPort("[2001:db8::1]:6443")}
	var got []string
	for _, s := range endpointSlicesOf(servers) {
		got = append(got, fmt.Sprintf("%s %s %s:%d", s.Name, s.AddressType, s.Endpoints[0].Addresses[0], *s.Ports[0].Port))
	}
	want := []string{"kubernetes IPv4 192.0.2.1:6443", "kubernetes-1 IPv4 192.0.2.2:7443", "kubernetes-2 IPv6 2001:db8::1:6443"}
	if !slices.Equal(got, want) {
		t.Errorf("slices = %q\nwant %q", got, want)
	}
}

func TestLeaseNames(t *testing.T) {
	for server, want := range map[string]string{
		"192.0.2.1:6443":      "svc-apiserver-192.0.2.1-6443",
		"[fe80::1%eth0]:6443": "svc-apiserver-fe80--1-6443",
	} {
		if got := leaseName(netip.MustParseAddrPort(server)); got != want {
			t.Errorf("lease of %s is %s, want %s", server, got, want)
		}
	}
}

// expect fails the test unless Endpoints and slices have these servers.
func expect(t *testing.T, client *fake.Clientset, want string) {
	t.Helper()
	endpoints, err := client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if endpoints.Labels[discoveryv1.LabelSkipMirror] != "true" {
		t.Error("the endpoints would be mirrored")
	}
	var got []string
	for _, s := range endpoints.Subsets {
		var addresses []string
		for _, a := range s.Addresses {
			addresses = append(addresses, a.IP)
		}
		got = append(got, fmt.Sprintf("%s on %d", strings.Join(addresses, ","), s.Ports[0].Port))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("endpoints = %q, want %q", got, want)
	}
	list, err := client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, s := range list.Items {
		var addresses []string
		for _, e := range s.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		got = append(got, fmt.Sprintf("%s on %d", strings.Join(addresses, ","), *s.Ports[0].Port))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("slices = %q, want %q", got, want)
	}
}
