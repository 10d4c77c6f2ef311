package networkpolicy

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"

	"svc.dev/svc/svclet/netnstest"
)

// advertise sends an unsolicited neighbour advertisement (RFC 4861, section 4.4) from an address
// to all nodes: that the target has a hardware address, whatever they knew.
func advertise(fd int, from, target string, mac net.HardwareAddr) error {
	const advertisement, override, targetLinkLayerAddress = 136, 0x20, 2
	message := slices.Concat([]byte{advertisement, 0, 0, 0, override, 0, 0, 0}, netip.MustParseAddr(target).AsSlice(), []byte{targetLinkLayerAddress, 1}, mac)
	return netnstest.In(fd, func() error {
		c, err := net.ListenPacket("ip6:ipv6-icmp", from)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := ipv6.NewPacketConn(c).SetMulticastHopLimit(255); err != nil {
			return err
		}
		_, err = c.WriteTo(message, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: "eth0"})
		return err
	})
}

func TestAPodAdvertisesItsOwnAddressesOnlyInTheKernel(t *testing.T) {
	node, _, other, _ := filteredPods(t)
	before, after := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	known := []string{"fd00::5", "fd00::6", "fe80::5"}
	if err := netnstest.In(node, func() error {
		bridge, err := netlink.LinkByName("svc0")
		if err != nil {
			return err
		}
		errs := []error{address("svc0", "fd00::1/64")}
		for _, ip := range known {
			errs = append(errs, netlink.NeighSet(&netlink.Neigh{
				LinkIndex: bridge.Attrs().Index, Family: netlink.FAMILY_V6, State: netlink.NUD_STALE, IP: net.ParseIP(ip), HardwareAddr: before,
			}))
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
	hardware := func() (found map[string]string, err error) {
		found = map[string]string{}
		return found, netnstest.In(node, func() error {
			bridge, err := netlink.LinkByName("svc0")
			if err != nil {
				return err
			}
			all, err := netlink.NeighList(bridge.Attrs().Index, netlink.FAMILY_V6)
			for _, n := range all {
				if slices.Contains(known, n.IP.String()) {
					found[n.IP.String()] = n.HardwareAddr.String()
				}
			}
			return err
		})
	}
	for _, target := range []string{"fd00::5", "fe80::5", "fd00::6"} { // the last one is its own
		if err := advertise(other, "fd00::6", target, after); err != nil {
			t.Fatal(err)
		}
	}
	NewWithT(t).Eventually(hardware).WithTimeout(10 * time.Second).Should(Equal(map[string]string{
		"fd00::5": before.String(), "fd00::6": after.String(), "fe80::5": after.String(),
	}))
}
