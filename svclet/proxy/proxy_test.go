//go:build linux

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/proxy/ruleset"
	"svc.dev/svc/svclet/services"
)

// kernel is nftables in memory, which can fail.
type kernel struct {
	*knftables.Fake
	mu   sync.Mutex
	fail error
	once bool // fail only once
	runs []string
}

func (k *kernel) Run(ctx context.Context, tx *knftables.Transaction) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fail; err != nil {
		if k.once {
			k.fail = nil
		}
		return err
	}
	k.runs = append(k.runs, tx.String())
	return k.Fake.Run(ctx, tx)
}

func newProxy(t *testing.T) (*Proxy, *kernel) {
	t.Helper()
	var v4 *kernel
	p, err := New(Options{
		Services: services.New(), Node: "here", Zone: func() string { return "" }, Bridge: "svc0", PodRanges: func() []string { return []string{"10.244.0.0/24"} }, Clock: clock.RealClock{},
		EndFlows:   func(corev1.IPFamily, *ruleset.Stale) error { return errors.New("no flow of UDP is expected") },
		Sysctl:     func(string, string) error { return nil },
		Generation: func() (uint32, error) { return 1, nil },
		Tables: func(family knftables.Family, name string) (knftables.Interface, error) {
			k := &kernel{Fake: knftables.NewFake(family, name)}
			if family == knftables.IPv4Family {
				v4 = k
			}
			return k, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, v4
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func slice(name, of, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// must fails the test on an error of a store.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listedServices is a proxy that has two services with an endpoint each, and has written them.
func listedServices(t *testing.T) (*Proxy, *kernel) {
	t.Helper()
	p, v4 := newProxy(t)
	must(t, p.options.Services.Services().Replace([]any{service("web", "10.96.0.1"), service("db", "10.96.0.2")}, ""))
	if p.sync(t.Context()); len(v4.runs) > 0 {
		t.Fatalf("written before all endpoints are known: %s", v4.runs)
	}
	must(t, p.options.Services.EndpointSlices().Replace([]any{slice("web-1", "web", "10.244.0.5"), slice("db-1", "db", "10.244.0.6")}, ""))
	if !p.sync(t.Context()) || len(v4.runs) != 1 {
		t.Fatalf("%d transactions", len(v4.runs))
	}
	return p, v4
}

func TestTheFirstTransactionHasAllServices(t *testing.T) {
	_, v4 := listedServices(t)
	for _, want := range []string{"endpoints { 10.96.0.1 . tcp . 80 . 0x0 : 10.244.0.5 . 8080 }", "endpoints { 10.96.0.2 . tcp . 80 . 0x0 : 10.244.0.6 . 8080 }", "cluster-ips { 10.96.0.1 . tcp . 80", "cluster-ips { 10.96.0.2 . tcp . 80"} {
		if !strings.Contains(v4.Dump(), want) {
			t.Errorf("no %s in\n%s", want, v4.Dump())
		}
	}
}

func TestAChangeWritesOnlyItsService(t *testing.T) {
	p, v4 := listedServices(t)
	must(t, p.options.Services.EndpointSlices().Update(slice("web-1", "web", "10.244.0.9")))
	p.sync(t.Context())
	last := v4.runs[len(v4.runs)-1]
	if len(v4.runs) != 2 || !strings.Contains(last, "10.244.0.9") || strings.Contains(last, "10.96.0.2 ") {
		t.Errorf("%d transactions, the last:\n%s", len(v4.runs), last)
	}
	// An event that changes nothing writes nothing.
	must(t, p.options.Services.EndpointSlices().Update(slice("web-1", "web", "10.244.0.9")))
	if p.sync(t.Context()); len(v4.runs) != 2 {
		t.Errorf("%d transactions", len(v4.runs))
	}
}

func TestASliceWithAnotherLabelServesTheOtherService(t *testing.T) {
	p, v4 := listedServices(t)
	must(t, p.options.Services.EndpointSlices().Update(slice("web-1", "db", "10.244.0.5")))
	p.sync(t.Context())
	if dump := v4.Dump(); !strings.Contains(dump, "closed-ips { 10.96.0.1 . tcp . 80") || !strings.Contains(dump, "{ 10.96.0.2 . tcp . 80 . 0x1 : 10.244.0.5 . 8080 }") {
		t.Error(dump)
	}
}

func TestWhatIsMissingInANewListIsRemoved(t *testing.T) {
	p, v4 := listedServices(t)
	must(t, p.options.Services.Services().Replace([]any{service("web", "10.96.0.1")}, ""))
	p.sync(t.Context())
	if strings.Contains(v4.Dump(), "/db/") {
		t.Error(v4.Dump())
	}
}

func TestAfterAFailureTheWholeTableIsWritten(t *testing.T) {
	p, v4 := listedServices(t)
	v4.fail = errors.New("no memory")
	must(t, p.options.Services.Services().Delete(service("db", "10.96.0.2")))
	if p.sync(t.Context()) || p.Written() {
		t.Error("a failed transaction is reported as done")
	}
	if err := p.Problem(); !errors.Is(err, v4.fail) {
		t.Errorf("the problem is %v", err)
	}
	v4.fail = nil
	if !p.sync(t.Context()) || !p.Written() || p.Problem() != nil || !strings.Contains(v4.runs[len(v4.runs)-1], "delete table") || strings.Contains(v4.Dump(), "/db/") {
		t.Error(v4.runs[len(v4.runs)-1])
	}
}

// As of a kernel that refuses to delete a chain in the transaction that deletes what leads to it.
func TestAfterARefusedChangeTheWholeTableIsWrittenAtOnce(t *testing.T) {
	p, v4 := listedServices(t)
	v4.fail, v4.once = errors.New("device or resource busy"), true
	must(t, p.options.Services.Services().Delete(service("db", "10.96.0.2")))
	if !p.sync(t.Context()) || !p.Written() || p.Problem() != nil {
		t.Errorf("not written: %v", p.Problem())
	}
	if dump := v4.Dump(); len(v4.runs) != 2 || !strings.Contains(v4.runs[1], "delete table") || strings.Contains(dump, "10.96.0.2") || !strings.Contains(dump, "10.96.0.1") {
		t.Errorf("%d transactions, the table has\n%s", len(v4.runs), dump)
	}
}

func TestANodeInAnotherZoneGetsTheWholeTable(t *testing.T) {
	p, v4 := listedServices(t)
	p.options.Zone = func() string { return "east" }
	if p.sync(t.Context()); len(v4.runs) != 2 || !strings.Contains(v4.runs[1], "delete table") {
		t.Errorf("%d transactions", len(v4.runs))
	}
}

func TestOnlySourceRangesChangeWithTheAddressesOfTheNode(t *testing.T) {
	p, v4 := newProxy(t)
	balancer := service("balancer", "10.96.0.1")
	balancer.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	must(t, p.options.Services.Services().Replace([]any{balancer, service("web", "10.96.0.2")}, ""))
	must(t, p.options.Services.EndpointSlices().Replace(nil, ""))
	p.sync(t.Context())
	p.options.Addresses = func() []string { return []string{"192.0.2.1"} }
	if p.sync(t.Context()); len(v4.runs) != 2 || strings.Contains(v4.runs[1], "delete table") || !strings.Contains(v4.runs[1], "add element ip svc0 source-ranges-of-32 { 203.0.113.1 . 203.0.113.1 . tcp . 80 }") {
		t.Error(v4.runs[1:])
	}
}

func TestATableThatAnotherProgramHasRemovedIsWrittenAgain(t *testing.T) {
	p, v4 := listedServices(t)
	tx := v4.NewTransaction()
	tx.Delete(&knftables.Table{})
	must(t, v4.Fake.Run(t.Context(), tx))
	p.check(t.Context())
	select {
	case <-p.changes.Changed:
	default:
		t.Fatal("no sync is requested")
	}
	if p.sync(t.Context()); !strings.Contains(v4.Dump(), "10.96.0.1 . tcp . 80 . 0x0 : 10.244.0.5 . 8080") {
		t.Error(v4.Dump())
	}
}

func TestFlowsOfAnEndpointThatIsGoneEndAfterItsRules(t *testing.T) {
	p, v4 := newProxy(t)
	var ended int
	p.options.EndFlows = func(family corev1.IPFamily, stale *ruleset.Stale) error {
		if family == corev1.IPv4Protocol && stale.Has(netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.244.0.5:8080"), nil) {
			ended = len(v4.runs)
		}
		return nil
	}
	udp, endpoints := service("web", "10.96.0.1"), slice("web-1", "web", "10.244.0.5")
	udp.Spec.Ports[0].Protocol, endpoints.Ports[0].Protocol = corev1.ProtocolUDP, ptr.To(corev1.ProtocolUDP)
	must(t, p.options.Services.Services().Replace([]any{udp}, ""))
	must(t, p.options.Services.EndpointSlices().Replace([]any{endpoints}, ""))
	if p.sync(t.Context()); ended != 0 {
		t.Error("flows of an endpoint that is there have ended")
	}
	must(t, p.options.Services.EndpointSlices().Delete(endpoints))
	if p.sync(t.Context()); ended != 2 {
		t.Errorf("flows have ended after %d transactions", ended)
	}
}

// An attempt lists all flows of the machine.
func TestFlowsThatCannotEndAreTriedAgainAfterASecondAndThenWithTheCheck(t *testing.T) {
	type step struct {
		do          string // change, check or nothing, before a sync
		err         error  // of an attempt
		done        bool   // what sync reports
		tries, logs int    // so far
	}
	fail, unsupported := errors.New("interrupted"), fmt.Errorf("no netlink: %w", errors.ErrUnsupported)
	for rule, steps := range map[string][]step{
		"the retry succeeds":  {{"change", fail, false, 1, 1}, {"", nil, true, 2, 1}, {"", fail, true, 2, 1}, {"check", fail, true, 2, 1}},
		"each failure is one": {{"change", fail, false, 1, 1}, {"", nil, true, 2, 1}, {"change", fail, false, 3, 2}, {"", nil, true, 4, 2}},
		"the check retries":   {{"change", fail, false, 1, 1}, {"", fail, true, 2, 1}, {"", nil, true, 2, 1}, {"check", fail, true, 3, 1}, {"", nil, true, 3, 1}, {"check", nil, true, 4, 1}, {"check", nil, true, 4, 1}},
		"a change retries":    {{"change", fail, false, 1, 1}, {"", fail, true, 2, 1}, {"change", fail, true, 3, 1}, {"", nil, true, 3, 1}, {"change", nil, true, 4, 1}},
		"the kernel cannot":   {{"change", unsupported, true, 1, 1}, {"", nil, true, 1, 1}, {"check", nil, true, 1, 1}, {"change", unsupported, true, 2, 1}, {"change", nil, true, 3, 1}},
	} {
		p, _ := newProxy(t)
		var next error
		tries, logs, last := 0, 0, byte(4)
		p.options.EndFlows = func(_ corev1.IPFamily, stale *ruleset.Stale) error {
			if tries++; !stale.Has(netip.MustParseAddrPort("10.96.0.1:80"), netip.MustParseAddrPort("10.244.0.200:8080"), nil) {
				t.Errorf("%s: a stale flow is missing", rule)
			}
			return next
		}
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, text string) {
			if strings.Contains(text, "end flows") {
				logs++
			}
		}, funcr.Options{}))
		udp := service("web", "10.96.0.1")
		udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
		must(t, p.options.Services.Services().Replace([]any{udp}, ""))
		must(t, p.options.Services.EndpointSlices().Replace(nil, ""))
		for i, s := range steps {
			switch s.do {
			case "change":
				last++
				endpoints := slice("web-1", "web", netip.AddrFrom4([4]byte{10, 244, 0, last}).String())
				endpoints.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
				must(t, p.options.Services.EndpointSlices().Update(endpoints))
			case "check":
				p.check(ctx)
			}
			next = s.err
			if done := p.sync(ctx); done != s.done || tries != s.tries || logs != s.logs || !p.Written() || p.Problem() != nil {
				t.Errorf("%s, step %d: done is %t after %d attempts and %d log lines, want %t, %d and %d; the rules are written: %t, %v", rule, i, done, tries, logs, s.done, s.tries, s.logs, p.Written(), p.Problem())
			}
		}
	}
}

func TestAMachineWithoutNftablesIsToldWhatItLacks(t *testing.T) {
	_, err := New(Options{Services: services.New(), Tables: func(knftables.Family, string) (knftables.Interface, error) {
		return nil, errors.New(`could not find nftables binary: exec: "nft": executable file not found in $PATH`)
	}})
	if err == nil || !strings.Contains(err.Error(), "install nftables") || !strings.Contains(err.Error(), "--service-proxy=false") {
		t.Error(err)
	}
}

// The server of this machine serves a port while that has no endpoints of the family.
func TestALocalServerServesAServicePortWithoutEndpoints(t *testing.T) {
	p, v4 := newProxy(t)
	p.options.EndFlows = func(corev1.IPFamily, *ruleset.Stale) error { return nil }
	var local map[services.Key]ruleset.Fallback
	p.options.Local = func() map[services.Key]ruleset.Fallback { return local }
	names := service("names", "10.96.0.10")
	names.Spec.IPFamilies = append(names.Spec.IPFamilies, corev1.IPv6Protocol)
	names.Spec.ClusterIPs = append(names.Spec.ClusterIPs, "fd00::10")
	names.Spec.Ports = []corev1.ServicePort{
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
		{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9153},
	}
	must(t, p.options.Services.Services().Replace([]any{names}, ""))
	must(t, p.options.Services.EndpointSlices().Replace(nil, ""))
	expect := func(when string, want map[string]bool) {
		t.Helper()
		p.sync(t.Context())
		dump := v4.Dump()
		for rule, there := range want {
			if strings.Contains(dump, rule) != there {
				t.Errorf("%s: %q is there: %t\n%s", when, rule, !there, dump)
			}
		}
	}
	const udp, tcp = "10.96.0.10 . udp . 53 . 0x0 : 127.0.0.1 . 4053", "10.96.0.10 . tcp . 53 . 0x0 : 127.0.0.1 . 4053"
	expect("before the server listens", map[string]bool{udp: false, tcp: false, "closed-ips { 10.96.0.10 . tcp . 53": true})
	local = map[services.Key]ruleset.Fallback{{Namespace: "shop", Name: "names"}: {Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4053"), netip.MustParseAddrPort("[fd00::53]:4053")}, Port: 53}}
	expect("without endpoints", map[string]bool{udp: true, tcp: true, "closed-ips { 10.96.0.10 . tcp . 9153": true})
	if last := v4.runs[len(v4.runs)-1]; strings.Contains(last, "delete table") {
		t.Errorf("the whole table is written:\n%s", last)
	}
	endpoints := slice("names-1", "names", "10.244.0.5")
	endpoints.Ports[0].Name, endpoints.Ports[0].Protocol = ptr.To("dns"), ptr.To(corev1.ProtocolUDP)
	must(t, p.options.Services.EndpointSlices().Add(endpoints))
	expect("with endpoints of UDP", map[string]bool{udp: false, tcp: true, "10.96.0.10 . udp . 53 . 0x0 : 10.244.0.5 . 8080": true})
	must(t, p.options.Services.EndpointSlices().Delete(endpoints))
	expect("without them again", map[string]bool{udp: true, tcp: true})
}

func TestKernelParametersThatAnotherProgramHasChangedAreSetAgain(t *testing.T) {
	p, _ := listedServices(t)
	has := map[string]string{}
	p.options.Sysctl = func(name, value string) error { has[name] = value; return nil }
	for range 2 {
		p.check(t.Context())
		for _, name := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables", "net/ipv4/conf/all/route_localnet"} {
			if has[name] != "1" {
				t.Errorf("%s is %q", name, has[name])
			}
		}
		clear(has)
	}
}

// Otherwise other machines of the same network reach programs at 127.0.0.1 (CVE-2020-8558).
func TestLoopbackAddressesAreRoutedOnlyWhileTheirGuardIsWritten(t *testing.T) {
	p, v4 := newProxy(t)
	has := map[string]string{}
	p.options.Sysctl = func(name, value string) error {
		if name == "net/ipv4/conf/all/route_localnet" && !strings.Contains(v4.Dump(), `iifname != "lo" ip daddr 127.0.0.0/8 ct state new drop`) {
			t.Error("loopback addresses are routed without the guard")
		}
		has[name] = value
		return nil
	}
	ended, end := context.WithCancel(t.Context())
	end()
	expect := func(when string, routed bool) {
		t.Helper()
		if (has["net/ipv4/conf/all/route_localnet"] == "1") != routed {
			t.Errorf("%s: loopback addresses are routed: %t", when, !routed)
		}
		clear(has)
	}
	p.Run(ended)
	if has["net/bridge/bridge-nf-call-iptables"] != "1" {
		t.Error("answers of pods on the same bridge do not pass the rules from the start")
	}
	expect("at the start", false)
	must(t, p.options.Services.Services().Replace([]any{service("web", "10.96.0.1")}, ""))
	p.check(t.Context())
	p.sync(t.Context())
	expect("before endpoints are listed", false)
	must(t, p.options.Services.EndpointSlices().Replace(nil, ""))
	v4.fail = errors.New("no memory")
	p.sync(t.Context())
	p.check(t.Context())
	expect("after a transaction that has failed", false)
	v4.fail = nil
	p.sync(t.Context())
	expect("after the first transaction", true)
	p.sync(t.Context())
	expect("without a change", false)
	p.check(t.Context())
	expect("with a check", true)
	tx := v4.NewTransaction()
	tx.Delete(&knftables.Table{})
	must(t, v4.Fake.Run(t.Context(), tx))
	p.check(t.Context())
	expect("with a check that finds the table missing", false)
	p.sync(t.Context())
	expect("after the table is written again", true)
}
