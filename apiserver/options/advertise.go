package options

import (
	"fmt"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Advertised returns the address at which members of the cluster reach the server:
// --advertise-address, --bind-address or, if that is any address, one of the host's of the
// family that the Service kubernetes has. The error names the flags.
func (o *Options) Advertised() (net.IP, error) { return o.advertised(utilnet.ResolveBindAddress) }

// advertised is Advertised with the function that returns an address of the host, preferably
// of the family of another one.
func (o *Options) advertised(ofHost func(like net.IP) (net.IP, error)) (net.IP, error) {
	address, known := o.namedAddress()
	if !known {
		ranges, err := o.Network.ServiceCIDRs()
		if err != nil {
			return nil, err
		}
		like := net.IPv4zero
		if ranges[0].Addr().Is6() {
			like = net.IPv6unspecified
		}
		if address, err = ofHost(like); err != nil {
			return nil, fmt.Errorf("no address to advertise: %w; set --advertise-address", err)
		}
	}
	return address, o.checkFamily(address)
}

// namedAddress returns the address to advertise that the flags name, if they name one.
func (o *Options) namedAddress() (address net.IP, named bool) {
	if address = o.Network.AdvertiseAddress; address == nil {
		address = o.SecureServing.BindAddress
	}
	return address, address != nil && !address.IsUnspecified()
}

// checkFamily returns an error if an address has another family than the Service kubernetes,
// of which it could not be an endpoint. A loopback address is none, and a server behind a host
// has no such Service.
func (o *Options) checkFamily(address net.IP) error {
	ranges, err := o.Network.ServiceCIDRs()
	if err != nil || o.Host.GroupDomain != "" || address.IsLoopback() || ranges[0].Addr().Is4() == (address.To4() != nil) {
		return nil // an error of the ranges is one of their flag
	}
	return fmt.Errorf("--advertise-address: %s has another family than the first range of --service-cluster-ip-range, %s, from which the Service kubernetes has its address; "+
		"set --advertise-address to an address of that family, or a range of the other one", address, ranges[0])
}
