//go:build linux

package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/services"
)

// fill gives a store some services of each sort.
func fill(store *services.Store, each int) error {
	var all, endpoints []any
	for _, of := range sorts() {
		for range each {
			i := len(all)
			name := fmt.Sprintf("s%d", i)
			s := service(name, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String())
			of.spec(s, i)
			all, endpoints = append(all, s), append(endpoints, endpointsOf(of, i, 0))
		}
	}
	closed := service("closed", "10.96.128.1")
	closed.Spec.Ports[0].NodePort = 31_000
	v6 := service("v6", "fd00:96::1")
	v6.Spec.IPFamilies, v6.Spec.ExternalIPs = []corev1.IPFamily{corev1.IPv6Protocol}, []string{"fd00:99::1"}
	two := slice("v6-1", "v6", "fd00:244::5")
	two.AddressType = discoveryv1.AddressTypeIPv6
	two.Endpoints = append(two.Endpoints, discoveryv1.Endpoint{Addresses: []string{"fd00:244::6"}})
	return errors.Join(store.Services().Replace(append(all, closed, v6), ""), store.EndpointSlices().Replace(append(endpoints, two), ""))
}

// listed returns what the program nft lists of all tables, word for word, sorted: the
// elements of a set have no order.
func listed(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Errorf("nft list ruleset: %v: %s", err, out)
	}
	words := strings.Fields(strings.ReplaceAll(string(out), ",", ""))
	return slices.Sorted(slices.Values(words))
}

func TestWhatAnotherProgramChangesInTablesIsWrittenAgain(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		p := newKernelProxy(t, services.New())
		if p == nil {
			return
		}
		p.options.PodRanges = func() []string { return []string{"10.88.1.0/24", "10.88.0.0/24", "fd00:88::/64", "10.88.1.0/24"} }
		if err := fill(p.options.Services, 2); err != nil || !p.sync(t.Context()) {
			t.Error(err, p.Problem())
			return
		}
		// synced reports whether the check and the sync after it find what is to be there.
		synced := func() bool { p.check(t.Context()); return p.sync(t.Context()) }
		if !synced() {
			t.Error("tables that are the same differ")
		}
		if p.check(t.Context()); p.comparison.Due() {
			t.Error("tables that were the same are compared again")
		}
		want := listed(t)
		for _, command := range []string{
			"flush map ip svc0 tcp-endpoints", "flush set ip svc0 cluster-ips", "flush set ip svc0 cluster-ips-of-5", "flush chain ip svc0 node-ports", "flush chain ip svc0 cluster-ips-for-10800s-4", "flush chain ip svc0 source-ranges",
			"flush set ip svc0 guarded-ips", "flush set ip svc0 source-ranges-of-24", "flush set ip svc0 cluster-ips-of-numbers-11111-for-10800s", "flush set ip svc0 closed-node-ports", "flush set ip svc0 hairpins", "flush set ip6 svc0 pod-ranges", "flush map ip6 svc0 tcp-external-endpoints",
			"insert rule ip svc0 external-ips return", "add element ip6 svc0 dropped-ips { fd00:96::2 . tcp . 80 }", "flush chain ip6 svc0 mark-for-masquerade", "delete table ip6 svc0", "flush ruleset",
		} {
			if out, err := exec.CommandContext(t.Context(), "nft", strings.Fields(command)...).CombinedOutput(); err != nil {
				t.Errorf("nft %s: %v: %s", command, err, out)
			}
			if _, removed := map[string]bool{"delete table ip6 svc0": true, "flush ruleset": true}[command]; synced() != removed {
				t.Errorf("nft %s is not noticed by the comparison, or a removed table is not written by the first sync", command)
			}
			if !p.sync(t.Context()) || !synced() || !slices.Equal(listed(t), want) {
				t.Errorf("after nft %s the rules are not written again:\n%v\nwant\n%v", command, listed(t), want)
			}
		}
	})
}

func TestTablesAreComparedOnlyAfterAChangeOfTheGeneration(t *testing.T) {
	p, v4 := listedServices(t)
	flush := func() {
		tx := v4.NewTransaction()
		tx.Flush(&knftables.Set{Name: "cluster-ips"})
		must(t, v4.Fake.Run(t.Context(), tx))
	}
	// expect checks and syncs, and expects that the flush of the set has been noticed, or not.
	expect := func(rule string, noticed bool) {
		t.Helper()
		if p.check(t.Context()); p.sync(t.Context()) == noticed {
			t.Errorf("%s: it is noticed: %t", rule, !noticed)
		}
	}
	expect("nothing has changed", false)
	flush()
	expect("the generation has not changed", false)
	generation := uint32(1)
	p.comparison.Generation = func() (uint32, error) { generation++; return generation, nil }
	expect("the generation changes while tables are read", false)
	p.comparison.Generation = func() (uint32, error) { return 2, nil }
	expect("the generation has changed", true)
	if p.sync(t.Context()); !strings.Contains(v4.Dump(), "cluster-ips { 10.96.0.1 . tcp . 80 }") {
		t.Error(v4.Dump())
	}
}

// What a change of endpoints costs depends neither on the other services nor on the other
// endpoints of its service. It has no rules and no verdicts, after which the kernel would look for
// loops in those of all services.
func TestAChangeOfAnEndpointIsOfElementsOfItsService(t *testing.T) {
	// operations returns those of the changes of one service, of a sort, beside others.
	operations := func(of sort, each int) [][]string {
		p, v4 := newProxy(t)
		must(t, fill(p.options.Services, each))
		p.sync(t.Context())
		of.name = "changes"
		s := service("s9999", "10.97.0.1")
		of.spec(s, 9999)
		must(t, p.options.Services.Services().Add(s))
		must(t, p.options.Services.EndpointSlices().Add(endpointsOf(of, 9999, 0)))
		p.sync(t.Context())
		var all [][]string
		for change := range 17 {
			must(t, p.options.Services.EndpointSlices().Update(endpointsOf(of, 9999, change)))
			if p.sync(t.Context()); change > 12 { // now there are the sets and rules of all numbers of endpoints
				all = append(all, strings.Split(strings.TrimSpace(v4.runs[len(v4.runs)-1]), "\n"))
			}
		}
		return all
	}
	more := func(of sort, endpoints int) sort { of.endpoints = endpoints; return of }
	for _, of := range sorts() {
		few := operations(of, 1)
		for rule, many := range map[string][][]string{"beside 50 times as many": operations(of, 50), "of a hundred endpoints": operations(more(of, 100), 1)} {
			for i := range few {
				if len(many[i]) != len(few[i]) {
					t.Errorf("%s, %s: %d operations instead of %d:\n%s", of.name, rule, len(many[i]), len(few[i]), strings.Join(many[i], "\n"))
				} else if at := slices.IndexFunc(many[i], func(line string) bool { return !strings.Contains(line, " element ") || strings.Contains(line, "goto") }); at >= 0 {
					t.Errorf("%s, %s: %s", of.name, rule, many[i][at])
				}
			}
		}
	}
}

// Of the sets and rules of numbers of endpoints that no service has any more, few stay.
func TestAServiceThatGrowsLeavesNoSetsBehind(t *testing.T) {
	p, v4 := listedServices(t)
	for n := 1; n <= 100; n++ {
		endpoints := slice("web-1", "web", "")
		endpoints.Ports[0].Protocol, endpoints.Endpoints = ptr.To(corev1.ProtocolTCP), nil
		for i := range n {
			endpoints.Endpoints = append(endpoints.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.1.%d", i)}})
		}
		must(t, p.options.Services.EndpointSlices().Update(endpoints))
		if !p.sync(t.Context()) {
			t.Fatal(p.Problem())
		}
	}
	dump := v4.Dump()
	if sets := strings.Count(dump, "add set ip svc0 cluster-ips-of-"); sets > 50 || !strings.Contains(dump, "add set ip svc0 cluster-ips-of-100 ") || strings.Contains(dump, "cluster-ips-of-9 ") || len(v4.runs) != 101 {
		t.Errorf("%d sets of numbers after %d transactions:\n%s", sets, len(v4.runs), dump)
	}
}
