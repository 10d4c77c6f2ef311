package clusterip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"svc.dev/svc/apis/servicerange"
)

func TestRepairsMakeObjectsAgreeWithServices(t *testing.T) {
	now := time.Now()
	aged := func(age time.Duration, o *networkingv1.IPAddress, change func(*networkingv1.IPAddress)) *networkingv1.IPAddress {
		o.CreationTimestamp = metav1.NewTime(now.Add(-age))
		if change != nil {
			change(o)
		}
		return o
	}
	old := func(name string) *networkingv1.IPAddress { return aged(time.Hour, newObject(ip, "default", name), nil) }
	for _, test := range []struct {
		rule     string
		services []*corev1.Service
		objects  []*networkingv1.IPAddress
		want     string // events, and addresses that are deleted and created
	}{
		{rule: "nothing is wrong", services: []*corev1.Service{service("a", ip)}, objects: []*networkingv1.IPAddress{old("a")}},
		{rule: "a service without its object", services: []*corev1.Service{service("a", ip)},
			want: "ClusterIPNotAllocated create for a"},
		{rule: "an object that refers to something else", services: []*corev1.Service{service("a", ip)}, objects: []*networkingv1.IPAddress{ofUser(ip)},
			want: "ClusterIPNotAllocated delete create for a"},
		{rule: "an object that refers to a deleted service", services: []*corev1.Service{service("a", ip)}, objects: []*networkingv1.IPAddress{old("gone")},
			want: "ClusterIPNotAllocated delete create for a"},
		{rule: "an object that refers to a service of another address", services: []*corev1.Service{service("a", ip), service("b", "10.0.0.2")},
			objects: []*networkingv1.IPAddress{old("b"), aged(time.Hour, newObject("10.0.0.2", "default", "b"), nil)},
			want:    "ClusterIPNotAllocated delete create for a"},
		{rule: "an object without the labels", services: []*corev1.Service{service("a", ip)},
			objects: []*networkingv1.IPAddress{aged(time.Hour, newObject(ip, "default", "a"), func(o *networkingv1.IPAddress) { o.Labels = nil })},
			want:    "delete create for a"},
		{rule: "two services with one address and its object", services: []*corev1.Service{service("a", ip), service("b", ip)}, objects: []*networkingv1.IPAddress{old("b")},
			want: "ClusterIPAlreadyAllocated"},
		{rule: "two services with one address and no object", services: []*corev1.Service{service("a", ip), service("b", ip)},
			want: "ClusterIPNotAllocated create for a; ClusterIPAlreadyAllocated"},
		{rule: "an address in no range", services: []*corev1.Service{service("a", "10.9.0.1")}, want: "ClusterIPOutOfRange"},
		{rule: "an address in no range, with its object", services: []*corev1.Service{service("a", "10.9.0.1")},
			objects: []*networkingv1.IPAddress{aged(time.Hour, newObject("10.9.0.1", "default", "a"), nil)}, want: "ClusterIPOutOfRange"},
		{rule: "a headless service", services: []*corev1.Service{func() *corev1.Service {
			s := service("a", corev1.ClusterIPNone)
			s.Spec.ClusterIP = corev1.ClusterIPNone
			return s
		}()}},
		{rule: "an old object without a service", objects: []*networkingv1.IPAddress{old("gone")}, want: "IPAddressNotAllocated delete"},
		{rule: "a new object without a service, which may be about to be written",
			objects: []*networkingv1.IPAddress{aged(grace, newObject(ip, "default", "new"), nil)}},
		{rule: "an old object of a service with another address", services: []*corev1.Service{service("a")}, objects: []*networkingv1.IPAddress{old("a")},
			want: "IPAddressWrongReference delete"},
		{rule: "an object of ours that does not refer to a service",
			objects: []*networkingv1.IPAddress{aged(0, newObject(ip, "default", "a"), func(o *networkingv1.IPAddress) { o.Spec.ParentRef.Resource = "gateways" })},
			want:    "IPAddressNotAllocated delete"},
		{rule: "an object of a user", objects: []*networkingv1.IPAddress{aged(time.Hour, ofUser(ip), nil)}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			inRange := func(a netip.Addr) bool { return servicerange.Contains(netip.MustParsePrefix("10.0.0.0/24"), a) }
			var got []string
			for _, r := range planRepairs(test.services, test.objects, inRange, now) {
				got = append(got, r.String())
			}
			if text := strings.Join(got, "; "); text != test.want {
				t.Errorf("got  %q\nwant %q", text, test.want)
			}
		})
	}
}

// String returns the event's reason and what is written.
func (r repair) String() string {
	var words []string
	if r.reason != "" {
		words = append(words, r.reason)
	}
	if r.remove != nil {
		words = append(words, "delete")
	}
	if r.owner != nil {
		words = append(words, "create for "+r.owner.Name)
	}
	return strings.Join(words, " ")
}

// ranges are those of one ServiceCIDR that is not ready.
func newRanges(t *testing.T, first []netip.Prefix, all ...*networkingv1.ServiceCIDR) *Ranges {
	t.Helper()
	client := fake.NewClientset()
	for _, object := range all {
		if err := client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	r, err := NewRanges(first, factory.Networking().V1().ServiceCIDRs())
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRepairAdoptsServicesAndDeletesLeftovers(t *testing.T) {
	c := newCluster()
	deleted := service("deleted", "10.0.0.4")
	c.services["default/a"], c.services["default/b"] = service("a", ip, "fd00::1"), service("b", "10.0.0.2")
	c.objects["10.0.0.2"], c.objects["10.0.0.3"] = newObject("10.0.0.2", "default", "wrong"), newObject("10.0.0.3", "default", "gone")
	c.objects["10.0.0.5"] = ofUser("10.0.0.5")
	ranges := newRanges(t, nil, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24", "fd00::/120"}},
	})
	recorder := events.NewFakeRecorder(10)
	all := []*corev1.Service{c.services["default/a"], c.services["default/b"], deleted}
	repair := func() {
		t.Helper()
		if err := c.addresses().Repair(t.Context(), all, ranges, time.Now(), recorder); err != nil {
			t.Fatal(err)
		}
	}
	repair()
	want := "10.0.0.1 object a; 10.0.0.2 object b; 10.0.0.5 object gateway of a user; fd00::1 object a"
	if got := c.state(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var reasons []string
	for range 4 {
		reasons = append(reasons, strings.Join(strings.Fields(<-recorder.Events)[:2], " "))
	}
	slices.Sort(reasons)
	if got := fmt.Sprint(reasons); got != "[Warning ClusterIPNotAllocated Warning ClusterIPNotAllocated Warning ClusterIPNotAllocated Warning IPAddressNotAllocated]" {
		t.Errorf("events %s", got)
	}
	repair()
	if got := c.state(); got != want || len(recorder.Events) > 0 {
		t.Errorf("the second repair does something: %s, %d events", got, len(recorder.Events))
	}
}
