//go:build linux

package ruleset

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
