//go:build linux

package ruleset

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

func TestEndpointsThatStayKeepTheirNumbers(t *testing.T) {
	for _, test := range []struct{ before, after, want string }{
		{"", "a b", "a b"},
		{"a b", "b a", "a b"},
		{"a b c", "c", "- - c"},
		{"- - c", "d c", "d - c"},
		{"a b c", "a d", "a d"},
		{"a - c", "a", "a"},
		{"a b", "c d e", "c d e"},
		{"a b", "", ""},
	} {
		fields := func(text string) []string {
			all := strings.Fields(text)
			for i, e := range all {
				all[i] = strings.Trim(e, "-")
			}
			return all
		}
		if got := keepNumbers(fields(test.before), fields(test.after)); !slices.Equal(got, fields(test.want)) {
			t.Errorf("from %q to %q: %q, want %q", test.before, test.after, got, test.want)
		}
	}
}

func TestEndpointsThatStayKeepTheirNumbersThroughRandomChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var numbers []string
	for range 1000 {
		var next []string
		for _, e := range strings.Split("abcdefghij", "") {
			if random.IntN(2) == 0 {
				next = append(next, e)
			}
		}
		random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		before := slices.Clone(numbers)
		numbers = keepNumbers(numbers, slices.Clone(next))
		for n, e := range before {
			if slices.Contains(next, e) && numbers[n] != e {
				t.Fatalf("from %q to %q: %q", before, next, numbers)
			}
		}
		there := slices.DeleteFunc(slices.Clone(numbers), func(e string) bool { return e == "" })
		if slices.Sort(there); !slices.Equal(there, slices.Sorted(slices.Values(next))) || len(numbers) > 0 && numbers[len(numbers)-1] == "" {
			t.Fatalf("from %q to %q: %q", before, next, numbers)
		}
	}
}

func TestNamesOfManyNumbersAreCutAndDiffer(t *testing.T) {
	names := map[string]bool{}
	for n := range 200 {
		c := choice{of: localExternalIPs, numbers: strings.Repeat("1", 100+n), timeout: 86400}
		if names[c.set()] = true; len(c.set()) > maxName {
			t.Errorf("%s is too long", c.set())
		}
	}
	if len(names) != 200 {
		t.Errorf("%d names of 200 choices", len(names))
	}
}

func TestARangeOfSourcesIsComparedByItsPrefix(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{"198.51.100.0/24", "ip saddr & 255.255.255.0"},
		{"192.0.2.1/32", "ip saddr"},
		{"10.0.0.0/9", "ip saddr & 255.128.0.0"},
		{"2001:db8::/33", "ip6 saddr & ffff:ffff:8000::"},
		{"2001:db8::1/128", "ip6 saddr"},
	} {
		source := netip.MustParsePrefix(test.source)
		table := Table{Family: corev1.IPv4Protocol}
		if source.Addr().Is6() {
			table.Family = corev1.IPv6Protocol
		}
		if got := table.source(source.Bits()); got != test.want {
			t.Errorf("%s: %q, want %q", test.source, got, test.want)
		}
	}
}

// The kernel refuses a transaction that gives a set more elements than it has room for. A set of a
// release before had more.
func TestASetOfClientsIsRestoredAsFarAsItHasRoom(t *testing.T) {
	c := choice{of: nodePorts, numbers: "1", size: 1, timeout: 600}
	var members []nft.Member
	for i := range maxClients + 10 {
		key := []byte{10, byte(i >> 16), byte(i >> 8), byte(i), 6, 0, 0, 0, 0x75, 0x30, 0, 0} // by TCP to port 30000
		members = append(members, nft.Member{Key: key, Expires: time.Minute})
	}
	clients := NewClients(corev1.IPv4Protocol, map[string][]nft.Member{c.clients(0): members}, nil)
	tx := knftables.NewFake(knftables.IPv4Family, "svc0").NewTransaction()
	clients.Restore(tx, Choices{c: 1})
	if tx.NumOperations() != maxClients {
		t.Errorf("%d of %d clients are restored, want %d", tx.NumOperations(), len(members), maxClients)
	}
}
