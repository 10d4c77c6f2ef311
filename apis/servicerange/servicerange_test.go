package servicerange

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

func TestARangeHasAllAddressesButTheFirstAndOfIPv4TheLast(t *testing.T) {
	object := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.8/29", "fd00::/126"}}}
	for address, want := range map[string]bool{
		"10.0.0.7": false, "10.0.0.8": false, "10.0.0.9": true, "10.0.0.14": true, "10.0.0.15": false,
		"fd00::": false, "fd00::1": true, "fd00::3": true, "fd00::4": false,
	} {
		if got := Has(object, netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}
