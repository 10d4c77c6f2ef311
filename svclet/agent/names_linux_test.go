package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	nodedns "svc.dev/svc/svclet/dns"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// inNetwork is set in the process that has a network of its own.
const inNetwork = "SVC_TEST_IN_NETWORK"

// ownNetwork reports whether the test runs in a process with a network of its own. If not,
// it has run the test in one.
func ownNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNetwork) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make networks")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), inNetwork+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// newPod connects a network namespace to this one by IPv6, and returns what runs a function
// in it.
func newPod(t *testing.T) func(func() error) error {
	t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "pod"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "eth0"}))
	work, done, ended := make(chan func() error), make(chan error), make(chan struct{})
	thread := make(chan int)
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with its network
		err := unix.Unshare(unix.CLONE_NEWNET)
		thread <- unix.Gettid()
		for do := range work {
			done <- errors.Join(err, do())
		}
	}()
	t.Cleanup(func() { close(work); <-ended })
	in := func(do func() error) error { work <- do; return <-done }
	id := <-thread
	up := func(name, address string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		return errors.Join(netlink.LinkSetUp(link), netlink.AddrAdd(link, a))
	}
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkSetNsPid(eth0, id))
	must(t, up("pod", "fd00:88::1/64"))
	lo, err := netlink.LinkByName("lo")
	must(t, errors.Join(err, netlink.LinkSetUp(lo)))
	must(t, in(func() error {
		return errors.Join(up("eth0", "fd00:88::2/64"), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("fd00:88::1")}))
	}))
	return in
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Real packets: a pod's question to the IPv6 address of the DNS service reaches the node's
// own server, also after another program has removed the server's interface.
func TestPodsAskTheNodesServerByIPv6(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const address = "fd00:96::a"
	pod := newPod(t)
	store := services.New()
	server, err := nodedns.Listen(t.Context(), nodedns.Options{
		Domain: "cluster.local", Services: store, Link: nodedns.LinkName("pod"), PortFile: filepath.Join(t.TempDir(), "port"), Clock: clock.RealClock{},
	})
	must(t, err)
	if !server.Serves(nodedns.Address6()) {
		t.Skip("this machine has no IPv6")
	}
	p, err := proxy.New(proxy.Options{
		Services: store, Node: "node", Zone: func() string { return "" }, Bridge: "pod", PodRanges: func() []string { return []string{"fd00:88::/64"} }, Clock: clock.RealClock{},
		Local: func() map[services.Key]ruleset.Fallback {
			return map[services.Key]ruleset.Fallback{nodedns.ServiceKey(): {Addresses: server.Addresses(), Port: nodedns.ServicePort}}
		},
	})
	must(t, err)
	service := dnsService(address)
	service.Spec.ClusterIP, service.Spec.IPFamilies = address, []corev1.IPFamily{corev1.IPv6Protocol}
	service.Spec.Ports = []corev1.ServicePort{
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: nodedns.ServicePort}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: nodedns.ServicePort},
	}
	must(t, store.Services().Replace([]any{service}, ""))
	must(t, store.EndpointSlices().Replace(nil, ""))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	running.Go(func() { p.Run(ctx) })
	defer func() { stop(); running.Wait() }()

	ask := func(protocol string) func() (string, error) {
		return func() (answer string, err error) {
			return answer, pod(func() error {
				m := new(dns.Msg).SetQuestion("kube-dns.kube-system.svc.cluster.local.", dns.TypeAAAA)
				reply, _, err := (&dns.Client{Net: protocol}).Exchange(m, netip.AddrPortFrom(netip.MustParseAddr(address), nodedns.ServicePort).String())
				if err == nil && len(reply.Answer) == 1 {
					answer = reply.Answer[0].(*dns.AAAA).AAAA.String()
				}
				return err
			})
		}
	}
	g := gomega.NewWithT(t)
	for _, protocol := range []string{"udp", "tcp"} {
		g.Eventually(ask(protocol)).WithTimeout(time.Minute).Should(gomega.Equal(address), protocol)
	}
	must(t, nodedns.Remove("pod"))
	must(t, store.Services().Update(service))
	g.Eventually(ask("udp")).WithTimeout(time.Minute).Should(gomega.Equal(address))
	must(t, nodedns.Remove("pod"))
	if links, err := netlink.LinkList(); err != nil || strings.Contains(strings.Join(namesOf(links), " "), "pod-ns") {
		t.Error(namesOf(links), err)
	}
}

func namesOf(links []netlink.Link) []string {
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return names
}
