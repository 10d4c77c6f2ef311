package containerd

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"svc.dev/svc/svclet/netnstest"
)

func TestTheBridgeKeepsItsHardwareAddressWhilePodsComeAndGo(t *testing.T) {
	netnstest.Run(t, "", func(t *testing.T) {
		c := Config{Bridge: "svctgateway"}
		if _, err := c.gateways([]string{"198.18.7.0/24"}); err != nil {
			t.Error(err)
			return
		}
		bridge, err := netlink.LinkByName(c.Bridge)
		if err != nil {
			t.Error(err)
			return
		}
		want := bridge.Attrs().HardwareAddr.String()
		// The lowest address that there is: of the ports' it would be the bridge's.
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "svctport", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "svctpeer"}
		for step, do := range []func() error{
			func() error { return netlink.LinkAdd(port) },
			func() error { return netlink.LinkSetMaster(port, bridge) },
			func() error { return netlink.LinkDel(port) },
		} {
			if err := do(); err != nil {
				t.Errorf("step %d: %v", step, err)
				return
			}
			now, err := netlink.LinkByName(c.Bridge)
			if err != nil {
				t.Error(err)
				return
			}
			if got := now.Attrs().HardwareAddr.String(); got != want {
				t.Errorf("after step %d the bridge has the hardware address %s, not %s", step, got, want)
			}
		}
	})
}

func TestTheBridgeHasTheFirstAddressOfEachRangeBeforeThereArePods(t *testing.T) {
	netnstest.Run(t, "", func(t *testing.T) {
		c := Config{Bridge: "svctgateway"}
		for range 2 { // it may exist
			got, err := c.gateways([]string{"198.18.7.0/24", "2001:db8:7::/64"})
			if err != nil {
				t.Error(err)
				return
			}
			if len(got) != 2 || got[0].String() != "198.18.7.1" || got[1].String() != "2001:db8:7::1" {
				t.Errorf("the bridge has %v", got)
			}
		}
		listener, err := net.Listen("tcp", "[2001:db8:7::1]:0")
		if err != nil {
			t.Errorf("the address of IPv6 is not usable at once: %v", err)
			return
		}
		listener.Close()
		if got, err := c.gateways(nil); err != nil || len(got) != 0 {
			t.Errorf("without ranges: %v, %v", got, err)
		}
		link, err := net.InterfaceByName("svctgateway")
		if err != nil {
			t.Error(err)
			return
		}
		addresses, err := link.Addrs()
		if err != nil {
			t.Error(err)
		}
		var texts []string
		for _, a := range addresses {
			texts = append(texts, a.String())
		}
		for _, want := range []string{"198.18.7.1/24", "2001:db8:7::1/64"} {
			if !slices.Contains(texts, want) {
				t.Errorf("the bridge has %v, not %s", texts, want)
			}
		}
	})
}
