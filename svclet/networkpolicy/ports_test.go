package networkpolicy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"
)

// writeResult writes what libcni keeps of a pod of the bridge svc0 with a port.
func writeResult(dir, port string, addresses ...string) error {
	var ips []string
	for _, address := range addresses {
		bits := 24
		if strings.Contains(address, ":") {
			bits = 64
		}
		ips = append(ips, fmt.Sprintf(`{"interface": 2, "address": "%s/%d", "gateway": "10.88.0.1"}`, address, bits))
	}
	return os.WriteFile(resultFile(dir, port), fmt.Appendf(nil, `{"kind": "cniCacheV1", "containerId": "a", "ifName": "eth0", "networkName": "svc0", "result": {
		"cniVersion": "0.4.0", "dns": {}, "ips": [%s],
		"interfaces": [{"name": "svc0", "mac": "1a:b1:00:00:00:01"}, {"name": %q, "mac": "1a:b1:00:00:00:02"}, {"name": "eth0", "mac": "1a:b1:00:00:00:03", "sandbox": "/run/netns/a"}]
	}}`, strings.Join(ips, ","), port), 0o600)
}

func resultFile(dir, port string) string { return filepath.Join(dir, "svc0-"+port+"-eth0") }

func TestThePortsOfPodsHaveTheirAddresses(t *testing.T) {
	f := newFixture(t)
	fake := f.ports.nft.(*kernel)
	want := func(what string, parts ...string) {
		t.Helper()
		var elements []string
		for line := range strings.Lines(fake.Dump()) {
			if _, element, found := strings.Cut(strings.TrimSpace(line), "add element bridge svc0-policies "); found {
				elements = append(elements, element)
			}
		}
		if got, want := strings.Join(elements, "\n"), strings.Join(parts, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	results := f.options.Results
	f.must(writeResult(results, "veth1", "10.244.0.5", "fd00::5"))
	f.must(os.WriteFile(resultFile(results, "veth3"), []byte(`{"kind"`), 0o600)) // is being written
	f.list(nil)
	if rules := fake.Dump(); rules != "" {
		t.Errorf("without a policy there are rules:\n%s", rules)
	}
	f.list(deny())
	first := []string{"addresses-ip { veth1 . 10.244.0.5 }", "addresses-ip6 { veth1 . fd00::5 }", "ports { veth1 }"}
	want("with a policy", first...)
	f.must(writeResult(results, "veth2", "10.244.0.6"))
	runs := len(fake.runs)
	f.sync(t.Context())
	want("another pod", "addresses-ip { veth1 . 10.244.0.5 }", "addresses-ip { veth2 . 10.244.0.6 }", first[1], first[2], "ports { veth2 }")
	if last := fake.last(); len(fake.runs) != runs+1 || strings.Contains(last, "veth1") {
		t.Errorf("not only the change is written:\n%s", last)
	}
	fake.fail = errors.New("no memory")
	f.must(os.Remove(resultFile(results, "veth2")))
	if f.sync(t.Context()) || !f.sync(t.Context()) {
		t.Error("the first failure is not retried soon, or a later one is")
	}
	fake.fail = nil
	f.sync(t.Context())
	want("a pod less, after a failure", first...)
	tx := fake.NewTransaction()
	tx.Delete(&knftables.Table{})
	f.must(fake.Fake.Run(t.Context(), tx))
	f.check(t.Context())
	f.sync(t.Context())
	want("after another program has removed the table", first...)
	f.list(nil)
	if rules := fake.Dump(); rules != "" {
		t.Errorf("after the last policy there are rules:\n%s", rules)
	}
}

func TestThePortsOfPodsAdvertiseTheirAddresses(t *testing.T) {
	f := newFixture(t)
	fake := f.ports.nft.(*kernel)
	want := func(what string, rules ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(fake.Dump()) {
			if _, rule, found := strings.Cut(strings.TrimSpace(line), "add rule bridge svc0-policies advertised "); found {
				got = append(got, rule)
			}
		}
		if rules = append(rules, "counter drop"); strings.Join(got, "\n") != strings.Join(rules, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(rules, "\n"))
		}
	}
	results := f.options.Results
	f.must(writeResult(results, "veth1", "10.244.0.5"))
	f.list(deny())
	want("a pod without an address of IPv6")
	f.must(writeResult(results, "veth2", "10.244.0.6", "fd00::6"))
	f.sync(t.Context())
	second := `iifname "veth2" @th,64,128 0xfd000000000000000000000000000006 return`
	want("another one with an address", second)
	f.must(writeResult(results, "veth3", "fd00::7"))
	f.sync(t.Context())
	want("and a third", second, `iifname "veth3" @th,64,128 0xfd000000000000000000000000000007 return`)
	f.must(os.Remove(resultFile(results, "veth3")))
	f.sync(t.Context())
	want("without the third", second)
	tx := fake.NewTransaction()
	tx.Flush(&knftables.Chain{Name: "advertised"})
	f.must(fake.Fake.Run(t.Context(), tx))
	f.check(t.Context())
	f.sync(t.Context())
	want("after another program has flushed the rules", second)
}
