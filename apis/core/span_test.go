package core

import (
	"net/netip"
	"testing"

	"svc.dev/svc/apis/resource"
)

func TestSpanKeepsALowerBandForNamedKeys(t *testing.T) {
	const v6size = 1<<62 - 1
	for _, test := range []struct {
		of           string
		span         span
		size, static uint64
		first, last  string
	}{
		{"10.96.0.0/12", addressSpan(netip.MustParsePrefix("10.96.0.0/12")), 1<<20 - 2, 256, "10.96.0.1", "10.111.255.254"},
		{"10.0.0.0/24", addressSpan(netip.MustParsePrefix("10.0.0.0/24")), 254, 16, "10.0.0.1", "10.0.0.254"},
		{"10.0.0.0/28", addressSpan(netip.MustParsePrefix("10.0.0.0/28")), 14, 0, "10.0.0.1", "10.0.0.14"},
		{"10.0.0.0/30", addressSpan(netip.MustParsePrefix("10.0.0.0/30")), 2, 0, "10.0.0.1", "10.0.0.2"},
		{"fd00::/112", addressSpan(netip.MustParsePrefix("fd00::/112")), 1<<16 - 1, 256, "fd00::1", "fd00::ffff"},
		{"fd00::/48", addressSpan(netip.MustParsePrefix("fd00::/48")), v6size, 256, "fd00::1", "fd00::3fff:ffff:ffff:ffff"},
		{"ports", portSpan(resource.PortRange{From: 30000, To: 32767}), 2768, 86, "30000", "32767"},
		{"one port", portSpan(resource.PortRange{From: 30000, To: 30000}), 1, 0, "30000", "30000"},
	} {
		if test.span.size != test.size || test.span.static != test.static {
			t.Errorf("%s: size and static band are %d and %d, want %d and %d", test.of, test.span.size, test.span.static, test.size, test.static)
		}
		if first, last := test.span.key(0), test.span.key(test.size-1); first != test.first || last != test.last {
			t.Errorf("%s: spans %s to %s, want %s to %s", test.of, first, last, test.first, test.last)
		}
	}
	for _, cidr := range []string{"10.0.0.0/32", "10.0.0.0/31", "fd00::/128"} {
		if size := addressSpan(netip.MustParsePrefix(cidr)).size; size != 0 {
			t.Errorf("%s has %d usable addresses, want none", cidr, size)
		}
	}
}

func TestSpanPicksAboveTheBandFirst(t *testing.T) {
	ports := portSpan(resource.PortRange{From: 30000, To: 30031})
	taken := map[string]bool{}
	for i := range 32 {
		key, ok := ports.pick(func(key string) bool { return taken[key] }, func(n uint64) uint64 { return n - 1 })
		if !ok || taken[key] {
			t.Fatalf("pick %d is %q, %v", i, key, ok)
		}
		if above := key >= "30016"; above != (i < 16) {
			t.Errorf("pick %d is %s", i, key)
		}
		taken[key] = true
	}
	if key, ok := ports.pick(func(key string) bool { return taken[key] }, func(uint64) uint64 { return 0 }); ok {
		t.Errorf("a full span gave %s", key)
	}
}
