package nodeipam

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	netutils "k8s.io/utils/net"
)

// options are the values of the flags.
type options struct {
	allocate                 bool
	clusterCIDR, serviceCIDR string
	mask, mask4, mask6       int
}

// The names of the flags.
const (
	AllocateFlag = "allocate-node-cidrs"
	ClusterFlag  = "cluster-cidr"
	serviceFlag  = "service-cluster-ip-range"
	maskFlag     = "node-cidr-mask-size"
	mask4Flag    = "node-cidr-mask-size-ipv4"
	mask6Flag    = "node-cidr-mask-size-ipv6"
)

// The default prefix lengths of nodes' CIDRs.
const (
	defaultMask4 = 24
	defaultMask6 = 64
)

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.allocate, AllocateFlag, o.allocate, "Give every node ranges of addresses for its pods, from --"+ClusterFlag+".")
	fs.StringVar(&o.clusterCIDR, ClusterFlag, o.clusterCIDR, "The range of the addresses of pods: a CIDR, or one of each family with a comma between.")
	fs.StringVar(&o.serviceCIDR, serviceFlag, o.serviceCIDR, "The ranges of cluster IPs, which nodes do not get.")
	fs.IntVar(&o.mask, maskFlag, o.mask, fmt.Sprintf("The length of the prefixes of nodes' ranges. The default is %d for IPv4 and %d for IPv6. For one family only.", defaultMask4, defaultMask6))
	fs.IntVar(&o.mask4, mask4Flag, o.mask4, fmt.Sprintf("The length of the prefixes of nodes' IPv4 ranges. The default is %d.", defaultMask4))
	fs.IntVar(&o.mask6, mask6Flag, o.mask6, fmt.Sprintf("The length of the prefixes of nodes' IPv6 ranges. The default is %d.", defaultMask6))
}

func (o *options) validate() []error {
	if !o.allocate {
		return nil
	}
	var errs []error
	for _, check := range []func() error{
		func() error { _, err := o.clusters(); return err },
		func() error { _, err := families(serviceFlag, o.serviceCIDR); return err },
	} {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// clusters returns the cluster CIDRs.
func (o *options) clusters() ([]cluster, error) {
	ranges, err := families(ClusterFlag, o.clusterCIDR)
	if err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("--%s: --%s needs it, such as 10.244.0.0/16", ClusterFlag, AllocateFlag)
	}
	if o.mask != 0 && len(ranges) > 1 {
		return nil, fmt.Errorf("--%s: give --%s and --%s instead for two families", maskFlag, mask4Flag, mask6Flag)
	}
	if o.mask != 0 && (o.mask4 != 0 || o.mask6 != 0) {
		return nil, fmt.Errorf("--%s: do not give --%s or --%s as well", maskFlag, mask4Flag, mask6Flag)
	}
	var clusters []cluster
	for _, r := range ranges {
		flag, bits, other, family := mask4Flag, defaultMask4, mask6Flag, "IPv4"
		value, otherValue := o.mask4, o.mask6
		if r.Addr().Is6() {
			flag, bits, other, family = mask6Flag, defaultMask6, mask4Flag, "IPv6"
			value, otherValue = o.mask6, o.mask4
		}
		if otherValue != 0 && len(ranges) == 1 {
			return nil, fmt.Errorf("--%s: --%s is %s only", other, ClusterFlag, family)
		}
		if o.mask != 0 {
			flag, bits = maskFlag, o.mask
		} else if value != 0 {
			bits = value
		}
		if bits < r.Bits() || bits > r.Addr().BitLen() {
			return nil, fmt.Errorf("--%s: %d must be between %d, as long as the prefix of --%s %s, and %d", flag, bits, r.Bits(), ClusterFlag, r, r.Addr().BitLen())
		}
		clusters = append(clusters, cluster{r, bits})
	}
	return clusters, nil
}

// families parses a flag with no CIDR, one, or one of each IP family.
func families(flag, value string) ([]netip.Prefix, error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	var ranges []netip.Prefix
	for part := range strings.SplitSeq(value, ",") {
		r, ok := parse(strings.TrimSpace(part))
		if !ok {
			return nil, fmt.Errorf("--%s: %q is not a CIDR, such as 10.244.0.0/16", flag, part)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("--%s: give one CIDR, or two of different families", flag)
	}
	return ranges, nil
}

// parse parses a CIDR as leniently as the API server does.
func parse(cidr string) (netip.Prefix, bool) {
	_, ipNet, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, _ := netip.AddrFromSlice(ipNet.IP)
	bits, size := ipNet.Mask.Size()
	if size == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits).Masked(), true
}
