package options

import (
	"net"
	"strings"
	"testing"
)

// The Service kubernetes has one family, that of the first range, and endpoints of this family
// only (validatePublicIPServiceClusterIPRangeIPFamilies of kube-apiserver).
func TestTheAdvertisedAddressHasTheFamilyOfTheServiceRange(t *testing.T) {
	for _, test := range []struct {
		flags   string
		refused bool
	}{
		{"--advertise-address=192.0.2.1", false},
		{"--advertise-address=fd00::1", true},
		{"--advertise-address=fd00::1 --service-cluster-ip-range=fd00:1::/112", false},
		{"--advertise-address=192.0.2.1 --service-cluster-ip-range=fd00:1::/112", true},
		{"--advertise-address=192.0.2.1 --service-cluster-ip-range=10.0.0.0/24,fd00:1::/112", false},
		{"--advertise-address=fd00::1 --service-cluster-ip-range=10.0.0.0/24,fd00:1::/112", true},
		{"--bind-address=fd00::1", true},
		{"--bind-address=fd00::1 --advertise-address=192.0.2.1", false},
		{"--bind-address=::", false},  // an address of the host is chosen
		{"--bind-address=::1", false}, // a loopback address is no endpoint
		{"--bind-address=fd00::1 --group-domain=svc.dev", false},
	} {
		o, err := parse(t, append(strings.Fields(test.flags), "--etcd-servers=http://127.0.0.1:2379")...)
		if err != nil {
			t.Fatal(err)
		}
		errs := o.Validate()
		if len(errs) > 0 != test.refused {
			t.Errorf("%s: %v, refused should be %t", test.flags, errs, test.refused)
		}
		for _, err := range errs {
			for _, want := range []string{"--advertise-address", "--service-cluster-ip-range"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v does not name %s", test.flags, err, want)
				}
			}
		}
	}
}

func TestAnAddressOfTheHostIsAdvertisedThatHasTheFamilyOfTheServiceRange(t *testing.T) {
	host := func(like net.IP) (net.IP, error) {
		if like.To4() != nil {
			return net.ParseIP("192.0.2.1"), nil
		}
		return net.ParseIP("fd00::1"), nil
	}
	for _, bind := range []string{"0.0.0.0", "::"} {
		for cidr, want := range map[string]string{"10.0.0.0/24,fd00:1::/112": "192.0.2.1", "fd00:1::/112,10.0.0.0/24": "fd00::1"} {
			o, err := parse(t, "--bind-address="+bind, "--service-cluster-ip-range="+cidr)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := o.advertised(host); err != nil || got.String() != want {
				t.Errorf("%s, %s: %v, %v, want %s", bind, cidr, got, err, want)
			}
		}
		o, err := parse(t, "--bind-address="+bind, "--service-cluster-ip-range=fd00:1::/112")
		if err != nil {
			t.Fatal(err)
		}
		alone := func(net.IP) (net.IP, error) { return net.ParseIP("192.0.2.1"), nil } // a host of one family
		if got, err := o.advertised(alone); err == nil || !strings.Contains(err.Error(), "--advertise-address") {
			t.Errorf("%s: %v, %v", bind, got, err)
		}
	}
}
