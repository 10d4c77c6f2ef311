package agent

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/services"
)

func dnsService(ips ...string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: dns.ServiceKey().Namespace, Name: dns.ServiceKey().Name},
		Spec:       corev1.ServiceSpec{ClusterIPs: ips},
	}
}

func dnsEndpoints(family discoveryv1.AddressType, ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)}}},
	}
}

func headless(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.Labels = map[string]string{corev1.IsHeadlessService: ""}
	return slice
}

func TestPodsAskAtAnAddressThatAnswers(t *testing.T) {
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	slices := func(all ...*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice { return all }
	none := func(netip.Addr) bool { return false }
	ipv4 := func(family netip.Addr) bool { return family.Is4() }
	both := func(netip.Addr) bool { return true }
	for _, test := range []struct {
		rule   string
		object services.Object
		routed func(netip.Addr) bool
		want   string
	}{
		{"there is no service", services.Object{}, ipv4, ""},
		{"the node's server has an IPv6 address", services.Object{Service: dnsService("fd00::a")}, both, "fd00::a"},
		{"it leads to the node's server", services.Object{Service: dnsService("10.0.0.10")}, ipv4, "10.0.0.10"},
		{"without the proxy it leads nowhere", services.Object{Service: dnsService("10.0.0.10")}, none, ""},
		{"it has a ready endpoint", services.Object{Service: dnsService("10.0.0.10"), Slices: slices(dnsEndpoints(v4, true))}, none, "10.0.0.10"},
		{"the proxy does not lead to its endpoint", services.Object{Service: dnsService("10.0.0.10"), Slices: slices(headless(dnsEndpoints(v4, true)))}, none, ""},
		{"its endpoint is not ready", services.Object{Service: dnsService("10.0.0.10"), Slices: slices(dnsEndpoints(v4, false))}, none, ""},
		{"the node's server has no IPv6 address", services.Object{Service: dnsService("fd00::a")}, ipv4, ""},
		{"the other family does", services.Object{Service: dnsService("fd00::a", "10.0.0.10")}, ipv4, "10.0.0.10"},
		{"an endpoint of IPv6", services.Object{Service: dnsService("fd00::a", "10.0.0.10"), Slices: slices(dnsEndpoints(v6, true))}, ipv4, "fd00::a"},
		{"it is headless", services.Object{Service: dnsService("None"), Slices: slices(dnsEndpoints(v4, true))}, ipv4, ""},
	} {
		if got := nameServer(test.object, test.routed); got != test.want {
			t.Errorf("%s: %q", test.rule, got)
		}
	}
}

func TestNameServersAreUnknownUntilTheServicesAreRead(t *testing.T) {
	turned := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	var forbidden atomic.Bool
	n := &nodeServices{store: services.New(), routed: func(netip.Addr) bool { return true }, clock: turned, forbidden: func(context.Context) bool { return forbidden.Load() }}
	base := common{Config: Config{Configuration: config.Default()}}
	if (&nodeServices{}).clusterDNS(base) != nil {
		t.Error("an agent that reads no services has name servers")
	}
	find := n.clusterDNS(base)
	for _, may := range []bool{true, false} {
		forbidden.Store(!may)
		failed := make(chan error, 1)
		go func() { _, err := find(t.Context()); failed <- err }()
		gomega.NewWithT(t).Eventually(turned.HasWaiters).WithTimeout(time.Minute).Should(gomega.BeTrue())
		turned.Step(syncWait)
		if err := <-failed; (err != nil) != may {
			t.Errorf("before the services are read, which is permitted: %t: %v", may, err)
		}
	}
	for _, err := range []error{n.store.Services().Replace([]any{dnsService("10.0.0.10")}, ""), n.store.EndpointSlices().Replace(nil, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, err := find(context.Background()); err != nil || len(got) != 1 || got[0] != "10.0.0.10" {
		t.Errorf("%v, %v", got, err)
	}
	base.Configuration.ClusterDNS = []string{"192.0.2.53"}
	if n.clusterDNS(base) != nil {
		t.Error("--cluster-dns is not used")
	}
}

func TestAPortOfTheDNSServerThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	g, turned := gomega.NewWithT(t), clocktesting.NewFakeClock(time.Unix(1e9, 0))
	var attempts atomic.Int32
	listen := func(ctx context.Context, o dns.Options) (*dns.Server, error) {
		if attempts.Add(1) <= 3 {
			return &dns.Server{}, syscall.EADDRINUSE
		}
		return dns.Listen(ctx, o)
	}
	listening := make(chan struct{})
	n := &nodeServices{store: services.New(), clock: turned, listening: func() { close(listening) }}
	var mu sync.Mutex
	var lines []string
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, text string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, text)
	}, funcr.Options{})))
	n.serveNames(ctx, listen, dns.Options{Domain: "cluster.local", Services: n.store, PortFile: filepath.Join(t.TempDir(), "port"), Clock: turned})
	if lacks := n.lacks(); len(lacks) != 1 || n.abandon() != nil {
		t.Errorf("the node lacks %v", lacks)
	}
	var running sync.WaitGroup
	running.Go(func() { n.tasks.parts[0](ctx) })
	for _, delay := range []time.Duration{minListenDelay, 2 * minListenDelay, 4 * minListenDelay} {
		g.Eventually(turned.HasWaiters).WithTimeout(time.Minute).Should(gomega.BeTrue())
		turned.Step(delay - time.Millisecond)
		if !turned.HasWaiters() {
			t.Errorf("the port was tried again before %v", delay)
		}
		turned.Step(time.Millisecond)
	}
	<-listening
	g.Expect(n.lacks()).To(gomega.BeEmpty())
	g.Expect(n.dns.Load().Serves(netip.IPv4Unspecified())).To(gomega.BeTrue())
	stop()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	g.Expect(lines).To(gomega.ConsistOf(gomega.ContainSubstring("will retry"), gomega.ContainSubstring("Started the DNS server")))
}

func TestTheDomainOfTheClusterHasADefaultWithDNS(t *testing.T) {
	base := common{Config: Config{Configuration: config.Default()}}
	for _, test := range []struct {
		dns, proxy bool
		configured string
		want       string
	}{
		{false, false, "", ""}, {true, false, "", "cluster.local"}, {false, true, "", "cluster.local"},
		{true, true, "example.org", "example.org"}, {false, false, "example.org", "example.org"},
	} {
		base.DNS, base.ServiceProxy, base.Configuration.ClusterDomain = test.dns, test.proxy, test.configured
		if got := clusterDomain(base); got != test.want {
			t.Errorf("%v: %s", test, got)
		}
	}
}

func TestANodeLacksWhatFailsOfServices(t *testing.T) {
	g := gomega.NewWithT(t)
	g.Expect((&nodeServices{}).lacks()).To(gomega.BeEmpty())
	n := nodeServices{proxyProblem: always(nil), dnsProblem: always(errors.New("no port"))}
	g.Expect(n.lacks()).To(gomega.Equal([]node.Lack{{Kind: node.ServiceDNSUnavailable, Reason: "ServiceDNSFailed", Message: "no port"}}))
}
