package containerd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// gateways makes the bridge, if it does not exist, and gives it the first address of each
// range, as the CNI plugin bridge does with the first pod. It returns these addresses.
func (c Config) gateways(ranges []string) ([]netip.Addr, error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: c.bridge()}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make the bridge %s: %w", c.bridge(), err)
	}
	link, err := netlink.LinkByName(c.bridge())
	if err != nil {
		return nil, fmt.Errorf("look up the bridge %s: %w", c.bridge(), err)
	}
	// A bridge whose address was not set has the lowest one of its ports: it would change
	// as pods come and go, and answers of pods to the address of before would be lost. The
	// plugin sets it only if it adds the addresses itself.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return nil, fmt.Errorf("keep the hardware address of the bridge %s: %w", c.bridge(), err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("start the bridge %s: %w", c.bridge(), err)
	}
	var addresses []netip.Addr
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		first := prefix.Masked().Addr().Next()
		address := &netlink.Addr{IPNet: &net.IPNet{IP: first.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), first.BitLen())}}
		if first.Is6() {
			address.Flags = unix.IFA_F_NODAD // usable at once, also while no pod is connected
		}
		if err := netlink.AddrAdd(link, address); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("give the bridge %s the address %s: %w", c.bridge(), first, err)
		}
		addresses = append(addresses, first)
	}
	return addresses, nil
}
