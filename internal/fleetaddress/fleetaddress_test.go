package fleetaddress_test

import (
	"testing"

	"svc.dev/svc/internal/fleetaddress"
)

func TestOnlyAURLThatEndsInAFleetsPathIsItsAddress(t *testing.T) {
	for server, want := range map[string]bool{
		"https://kubernetes.default.svc" + fleetaddress.Path("fleet.svc.dev", "default"): true,
		"https://10.0.0.1:6443/apis/fleet.example.org/v1/fleets/a/proxy/":                true,
		"https://gateway/clusters/c1" + fleetaddress.Path("fleet.svc.dev", "default"):    true,
		"https://10.0.0.1:6443":                                        false,
		"https://10.0.0.1:6443/apis/fleet.svc.dev/v1/fleets/a":         false,
		"https://10.0.0.1:6443/apis/fleet.svc.dev/v1/fleets//proxy":    false,
		"https://10.0.0.1:6443/apis/fleet/v1/fleets/a/proxy":           false,
		"https://10.0.0.1:6443/apis/fleet.svc.dev/v2/fleets/a/proxy":   false,
		"https://10.0.0.1:6443/apis/cluster.svc.dev/v1/fleets/a/proxy": false,
		"https://10.0.0.1:6443/api/v1/nodes/a/proxy":                   false,
		"10.0.0.1:6443": false,
		"":              false,
	} {
		if got := fleetaddress.IsAddress(server); got != want {
			t.Errorf("%q: %v, want %v", server, got, want)
		}
	}
}

func TestAFleetsAddressIsSplitIntoHostAndDomain(t *testing.T) {
	for server, want := range map[string][2]string{
		"https://10.0.0.1:6443/apis/fleet.example.org/v1/fleets/a/proxy":              {"https://10.0.0.1:6443", "example.org"},
		"https://gateway/clusters/c1" + fleetaddress.Path("fleet.svc.dev", "a") + "/": {"https://gateway/clusters/c1", "svc.dev"},
		"https://gateway/clusters/c1":                                                 {"", ""},
	} {
		host, domain, ok := fleetaddress.Split(server)
		if host != want[0] || domain != want[1] || ok != (want[0] != "") {
			t.Errorf("%q: %q, %q, %v, want %q", server, host, domain, ok, want)
		}
	}
}
