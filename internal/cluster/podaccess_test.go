package cluster

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/bootstrap"
)

// fakeBridge is a bridge with an address of this machine.
type fakeBridge struct {
	mu        sync.Mutex
	addresses []netip.Addr
	changed   chan struct{}
}

func (b *fakeBridge) Gateways() ([]netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addresses, nil
}

func (b *fakeBridge) PodRanges() ([]string, error) { return []string{"198.18.7.0/24"}, nil }

func (b *fakeBridge) PodRangesChanged() <-chan struct{} { return b.changed }

func (b *fakeBridge) set(addresses ...netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addresses = addresses
	b.changed <- struct{}{}
}

// ownAddress returns an IPv4 address of this machine that other machines reach.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr()
		}
	}
	t.Skip("this machine has no network")
	return netip.Addr{}
}

func TestAServerAtALoopbackAddressIsServedAtTheBridgeOfPods(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	address := ownAddress(t)
	dir := newDir(t)
	c := configured(t, dir, clock.RealClock{})
	components := c.components()
	turned := clocktesting.NewFakeClock(time.Now())
	access := &podAccess{clock: turned}
	for _, part := range components {
		switch part := part.(type) {
		case *apiServer:
			part.forPods, access.server = true, part
		case *certificates:
			access.keys = part
		}
	}
	start(t, components, c.Clock)
	bridge := &fakeBridge{changed: make(chan struct{}, 1)}
	if err := access.start(t.Context(), bridge); err != nil {
		t.Fatal(err)
	}
	defer access.Stop()
	config, err := clientcmd.BuildConfigFromFlags("", dir.AdminFile())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	// The pods have no addresses yet.
	bridge.set(address)
	published := func() ([]string, error) {
		slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil || len(slice.Endpoints) != 1 {
			return nil, err
		}
		return slice.Endpoints[0].Addresses, nil
	}
	g.Eventually(published).Should(gomega.Equal([]string{address.String()}))
	g.Eventually(turned.Waiters).Should(gomega.Equal(2), "the next passes are planned")
	if err := client.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(func() error {
		_, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{ResourceVersion: "0"})
		return err
	}).ShouldNot(gomega.Succeed(), "the watch cache has the deletion")
	turned.Step(bootstrap.EndpointsInterval)
	g.Eventually(published).Should(gomega.Equal([]string{address.String()}), "it is there again after the interval")
	at := netip.AddrPortFrom(address, uint16(c.Server.SecureServing.BindPort)).String() //nolint:gosec // a port
	config.Host = "https://" + at
	there, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	g.Eventually(func() error { return there.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error() }).Should(gomega.Succeed(), "with a certificate for the address")

	bridge.set()
	g.Eventually(func() error {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err
	}).ShouldNot(gomega.Succeed())
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
		t.Errorf("at the loopback address: %v", err)
	}
}
