package core

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// locateService returns the host that the service ns/web is proxied to, if its endpoints
// have the addresses.
func locateService(t *testing.T, env *resource.Env, addresses ...corev1.EndpointAddress) (string, error) {
	t.Helper()
	where, err := serviceProxy.Locate(t.Context(), &resource.Env{Objects: func(gr schema.GroupResource) resource.Objects {
		if gr != corev1.Resource("endpoints") {
			return env.Objects(gr)
		}
		return stored{gr: gr, objects: []runtime.Object{&corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
			Subsets:    []corev1.EndpointSubset{{Addresses: addresses, Ports: []corev1.EndpointPort{{Name: "web", Port: 8080}}}},
		}}}
	}}, resource.ConnectRequest{Namespace: "ns", Name: "web:web", Options: &corev1.ServiceProxyOptions{}})
	if err != nil {
		return "", err
	}
	return where.URL.Host, nil
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
	for _, address := range refused {
		host, err := locateService(t, podsEnv(), address)
		if want := `no endpoints available for service "web:web"`; !apierrors.IsServiceUnavailable(err) || err.Error() != want {
			t.Errorf("%s of %v: got %s and the error %v, want the error %s", address.IP, address.TargetRef, host, err, want)
		}
	}
	for ip, want := range map[string]string{"10.1.2.3": "10.1.2.3:8080", "fd00::3": "[fd00::3]:8080"} {
		if host, err := locateService(t, podsEnv(), append(slices.Clone(refused), at(ip, "Pod", "ns", "one"))...); host != want {
			t.Errorf("an address of a pod among others: got %s and the error %v, want %s", host, err, want)
		}
	}
}

func TestAServiceIsProxiedToARandomPod(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		host, err := locateService(t, podsEnv(), at("10.1.2.3", "Pod", "ns", "one"), at("10.1.2.4", "Pod", "ns", "two"))
		if err != nil {
			t.Fatal(err)
		}
		if seen[host] = true; len(seen) == 2 {
			return
		}
	}
	t.Errorf("1000 requests went to %v", seen)
}

func TestAServiceWhosePodsCannotBeReadIsReported(t *testing.T) {
	failure := apierrors.NewInternalError(errors.New("etcd is down"))
	env := &resource.Env{Objects: func(schema.GroupResource) resource.Objects { return failing{err: failure} }}
	if host, err := locateService(t, env, at("10.1.2.3", "Pod", "ns", "one")); !errors.Is(err, failure) {
		t.Errorf("got %s and the error %v, want %v", host, err, failure)
	}
}

// failing are objects that cannot be read.
type failing struct {
	resource.Objects
	err error
}

func (f failing) Get(context.Context, string, string) (runtime.Object, error) { return nil, f.err }
