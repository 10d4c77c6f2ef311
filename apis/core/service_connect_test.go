package core

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// located returns the host that the service ns/web is proxied to by these objects, which are
// Endpoints or EndpointSlices.
func located(t *testing.T, env *resource.Env, objects ...runtime.Object) (string, error) {
	t.Helper()
	_, endpoints := objects[0].(*corev1.Endpoints)
	where, err := serviceProxy.Locate(t.Context(), &resource.Env{
		ProxyBySlices: !endpoints,
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("fd00:1::/112"), netip.MustParsePrefix("10.0.0.0/24")},
		Objects: func(gr schema.GroupResource) resource.Objects {
			if gr == corev1.Resource("endpoints") && endpoints || gr == discoveryv1.Resource("endpointslices") && !endpoints {
				return listed{stored{gr: gr, objects: objects}}
			}
			return env.Objects(gr)
		},
	}, resource.ConnectRequest{Namespace: "ns", Name: "web:web", Options: &corev1.ServiceProxyOptions{}})
	if err != nil {
		return "", err
	}
	return where.URL.Host, nil
}

// listed are objects that can be listed.
type listed struct{ stored }

func (l listed) ListCached(_ context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	var found []runtime.Object
	for _, obj := range l.objects {
		if m := obj.(metav1.Object); m.GetNamespace() == namespace && selector.Matches(labels.Set(m.GetLabels())) {
			found = append(found, obj)
		}
	}
	return found, nil
}

// endpointsWith are the Endpoints of the service ns/web.
func endpointsWith(addresses ...corev1.EndpointAddress) []runtime.Object {
	return []runtime.Object{&corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Subsets:    []corev1.EndpointSubset{{Addresses: addresses, Ports: []corev1.EndpointPort{{Name: "web", Port: 8080}}}},
	}}
}

// slicesWith are EndpointSlices of the service ns/web, one for each address.
func slicesWith(addresses ...corev1.EndpointAddress) []runtime.Object {
	var all []runtime.Object
	for _, a := range addresses {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{TargetRef: a.TargetRef, Addresses: []string{a.IP}}},
			Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}},
		}
		if strings.Contains(a.IP, ":") {
			slice.AddressType = discoveryv1.AddressTypeIPv6
		}
		all = append(all, slice)
	}
	return all
}

// podsEnv is a server with pods and the addresses that they have.
func podsEnv() *resource.Env {
	pod := func(namespace, name string, ips ...string) runtime.Object {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{PodIP: ips[0]}}
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		return p
	}
	return &resource.Env{Objects: func(gr schema.GroupResource) resource.Objects {
		return stored{gr: gr, objects: []runtime.Object{
			pod("ns", "one", "10.1.2.3", "fd00::3"), pod("ns", "two", "10.1.2.4"), pod("ns", "local", "127.0.0.1"), pod("other", "one", "10.9.9.9"),
		}}
	}}
}

func at(ip, kind, namespace, name string) corev1.EndpointAddress {
	return corev1.EndpointAddress{IP: ip, TargetRef: &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}}
}

func TestAServiceIsProxiedOnlyToAddressesOfPodsOfItsNamespace(t *testing.T) {
	refused := []corev1.EndpointAddress{
		{IP: "10.1.2.3"},
		at("192.0.2.9", "Pod", "ns", "one"),
		at("10.1.2.4", "Pod", "ns", "one"),
		at("10.9.9.9", "Pod", "other", "one"),
		at("10.9.9.9", "Pod", "ns", "one"),
		at("10.1.2.3", "Pod", "other", "one"),
		at("10.1.2.3", "Pod", "", "one"),
		at("10.1.2.3", "Pod", "ns", "gone"),
		at("10.1.2.3", "Pod", "ns", ""),
		at("10.1.2.3", "Node", "ns", "one"),
		at("127.0.0.1", "Pod", "ns", "local"),
	}
	for name, with := range map[string]func(...corev1.EndpointAddress) []runtime.Object{"web:web": endpointsWith, "web": slicesWith} {
		for _, address := range refused {
			host, err := located(t, podsEnv(), with(address)...)
			if want := fmt.Sprintf("no endpoints available for service %q", name); !apierrors.IsServiceUnavailable(err) || err.Error() != want {
				t.Errorf("%s of %v: got %s and the error %v, want the error %s", address.IP, address.TargetRef, host, err, want)
			}
		}
		for ip, want := range map[string]string{"10.1.2.3": "10.1.2.3:8080", "fd00::3": "[fd00::3]:8080"} {
			if host, err := located(t, podsEnv(), with(append(slices.Clone(refused), at(ip, "Pod", "ns", "one"))...)...); host != want {
				t.Errorf("an address of a pod among others: got %s and the error %v, want %s", host, err, want)
			}
		}
	}
}

func TestAServiceIsProxiedToARandomPod(t *testing.T) {
	for _, with := range []func(...corev1.EndpointAddress) []runtime.Object{endpointsWith, slicesWith} {
		seen := map[string]bool{}
		for i := 0; len(seen) < 2; i++ {
			host, err := located(t, podsEnv(), with(at("10.1.2.3", "Pod", "ns", "one"), at("10.1.2.4", "Pod", "ns", "two"))...)
			if err != nil {
				t.Fatal(err)
			}
			if seen[host] = true; i == 1000 {
				t.Fatalf("1000 requests went to %v", seen)
			}
		}
	}
}

func TestAServiceIsProxiedToReadyEndpointsOfItsSlicesAndOfThePrimaryFamilyFirst(t *testing.T) {
	ready, alsoReady := at("10.1.2.3", "Pod", "ns", "one"), at("fd00::3", "Pod", "ns", "one")
	for range 100 {
		if host, err := located(t, podsEnv(), slicesWith(ready, alsoReady, ready)...); host != "[fd00::3]:8080" {
			t.Fatalf("got %s and the error %v of a cluster whose primary family is IPv6", host, err)
		}
	}
	for rule, change := range map[string]func(*discoveryv1.EndpointSlice){
		"an endpoint is not ready":     func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) },
		"the port has another name":    func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("other") },
		"the slice is another's":       func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" },
		"the slice has no endpoint":    func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
		"it is of another namespace":   func(s *discoveryv1.EndpointSlice) { s.Namespace = "other" },
		"an endpoint has no addresses": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil },
	} {
		objects := slicesWith(ready)
		change(objects[0].(*discoveryv1.EndpointSlice))
		if host, err := located(t, podsEnv(), objects...); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: got %s and the error %v", rule, host, err)
		}
	}
}

func TestAServiceWhosePodsCannotBeReadIsReported(t *testing.T) {
	failure := apierrors.NewInternalError(errors.New("etcd is down"))
	env := &resource.Env{Objects: func(schema.GroupResource) resource.Objects { return failing{err: failure} }}
	for _, with := range []func(...corev1.EndpointAddress) []runtime.Object{endpointsWith, slicesWith} {
		if host, err := located(t, env, with(at("10.1.2.3", "Pod", "ns", "one"))...); !errors.Is(err, failure) {
			t.Errorf("got %s and the error %v, want %v", host, err, failure)
		}
	}
}

// failing are objects that cannot be read.
type failing struct {
	resource.Objects
	err error
}

func (f failing) Get(context.Context, string, string) (runtime.Object, error) { return nil, f.err }
