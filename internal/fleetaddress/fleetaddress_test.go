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
