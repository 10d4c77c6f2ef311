package dns

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// anyAddress lets a socket listen at an address that the machine does not have yet.
func anyAddress(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1) })
	return errors.Join(err, set)
}

// ensureLink makes the interface with the address, or what of both is missing. It is a
// bridge without ports: nodes need the kernel's bridges anyway.
func ensureLink(name string) error {
	found, err := linkNamed(name)
	if err == nil && found == nil {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = name
		if err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err == nil {
			found, err = linkNamed(name)
		}
	}
	if err != nil {
		return err
	}
	if found.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(found); err != nil {
			return fmt.Errorf("start it: %w", err)
		}
	}
	address := Address6().AsSlice()
	have, err := netlink.AddrList(found, netlink.FAMILY_V6)
	if err != nil {
		return fmt.Errorf("list its addresses: %w", err)
	}
	if slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(address) }) {
		return nil
	}
	// No other machine is on this network, so there are no duplicates to detect.
	err = netlink.AddrAdd(found, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD})
	if err != nil {
		return fmt.Errorf("add the address %s: %w", Address6(), err)
	}
	return nil
}

// linkNamed returns an interface, or nil if there is none with the name.
func linkNamed(name string) (netlink.Link, error) {
	found, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return nil, nil
	}
	return found, err
}

// Remove removes the interface of the node with a bridge, if there is one.
func Remove(bridge string) error {
	found, err := linkNamed(LinkName(bridge))
	if err != nil || found == nil {
		return err
	}
	return netlink.LinkDel(found)
}
