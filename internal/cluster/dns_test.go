package cluster

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestTheDNSServiceHasTheTenthAddressOfTheIPv4Range(t *testing.T) {
	for _, test := range []struct {
		ranges  []string
		address string
		family  corev1.IPFamily
	}{
		{[]string{"10.0.0.0/24"}, "10.0.0.10", corev1.IPv4Protocol},
		{[]string{"10.96.0.0/12"}, "10.96.0.10", corev1.IPv4Protocol},
		{[]string{"fd00::/112", "10.96.0.0/12"}, "10.96.0.10", corev1.IPv4Protocol},
		{[]string{"fd00::/112"}, "fd00::a", corev1.IPv6Protocol},
		{[]string{"10.0.0.0/28"}, "10.0.0.10", corev1.IPv4Protocol},
		{[]string{"10.0.0.0/29"}, "", corev1.IPv4Protocol}, // the server allocates one
	} {
		var ranges []netip.Prefix
		for _, cidr := range test.ranges {
			ranges = append(ranges, netip.MustParsePrefix(cidr))
		}
		spec := newDNSService(ranges, true).Spec
		if spec.ClusterIP != test.address || spec.IPFamilies[0] != test.family {
			t.Errorf("%s: %s of %s", test.ranges, spec.ClusterIP, spec.IPFamilies[0])
		}
		if both := spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack; both != (len(ranges) == 2) {
			t.Errorf("%s: of both families: %v", test.ranges, both)
		}
	}
}

func TestTheDNSServiceIsCreatedOnce(t *testing.T) {
	const namespace = metav1.NamespaceSystem
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	users := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-dns"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.99"}}
	taken := func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.CreateAction).GetObject().(*corev1.Service).Spec.ClusterIP == "" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "kube-dns", nil)
	}
	raced := func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "services"}, "kube-dns")
	}
	for _, test := range []struct {
		rule   string
		client *fake.Clientset
		create clienttesting.ReactionFunc
		want   string
	}{
		{"there is none", fake.NewClientset(), nil, "10.0.0.10"},
		{"the user's is kept", fake.NewClientset(users), nil, "10.0.0.99"},
		{"another service has the address", fake.NewClientset(), taken, ""},
	} {
		if test.create != nil {
			test.client.PrependReactor("create", "services", test.create)
		}
		services := test.client.CoreV1().Services(namespace)
		for range 2 {
			got, err := ensureDNS(context.Background(), services, ranges)
			if err != nil || got.Spec.ClusterIP != test.want {
				t.Errorf("%s: %v, %v", test.rule, got, err)
			}
		}
		if all, err := services.List(context.Background(), metav1.ListOptions{}); err != nil || len(all.Items) != 1 {
			t.Errorf("%s: %v, %v", test.rule, all, err)
		}
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "services", raced)
	if _, err := ensureDNS(context.Background(), client.CoreV1().Services(namespace), ranges); !apierrors.IsNotFound(err) {
		t.Errorf("another svc up created and deleted it: %v", err)
	}
}

func TestTheDNSServiceIsCreatedAsSoonAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var attempts atomic.Int32
		var free atomic.Bool
		client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts.Add(1)
			return !free.Load(), nil, errors.New("no address is free")
		})
		var messages bytes.Buffer
		d := &dnsService{messages: &messages, program: "svc up"}
		services := client.CoreV1().Services("kube-system")
		starting, started := context.WithCancel(t.Context())
		if err := d.ensure(starting, services, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}); err != nil {
			t.Error(err)
		}
		started() // the start has ended, the attempts go on
		if !strings.Contains(messages.String(), "names of services have no server until the service kube-system/kube-dns can be created, will retry: no address is free") {
			t.Error(messages.String())
		}
		expect := func(when string, want int32) {
			t.Helper()
			time.Sleep(dnsRetryDelay) // of the bubble
			synctest.Wait()
			if got := attempts.Load(); got != want {
				t.Errorf("%s: %d attempts", when, got)
			}
		}
		expect("it still fails", 2)
		free.Store(true)
		expect("it can be created", 3)
		created, err := services.Get(t.Context(), "kube-dns", metav1.GetOptions{})
		if err != nil || created.Spec.Selector["k8s-app"] != "kube-dns" || created.Spec.ClusterIP != "10.0.0.10" || created.Spec.IPFamilies[0] != corev1.IPv4Protocol {
			t.Errorf("%v: %v", created, err)
		}
		expect("it is there", 3)
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
}
