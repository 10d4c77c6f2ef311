//go:build linux

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"svc.dev/svc/svclet/podnetwork/plan"
)

const (
	// protocol marks routes as svclet's; `ip route` shows it as "proto 118".
	protocol = 118
	// vni is the identifier of the VXLAN network, "svc"; port is the UDP port, which the
	// kernel and other networks of pods use, too.
	vni  = 0x737663
	port = 8472
	// tunnelSuffix is appended to the bridge's name.
	tunnelSuffix = "-vx"
)

// kernel is the machine's network: routes, links and neighbours.
type kernel struct {
	netlink *netlink.Handle
	// tunnel is the name of the interface of tunnels.
	tunnel string
	// metric distinguishes the routes of agents on one machine. Routes of administrators
	// have lower ones, and win.
	metric int
}

// openKernel returns the network of the calling thread's network namespace, for the node
// with a bridge.
func openKernel(bridge string) (*kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("access the machine's network: %w", err)
	}
	if bridge == "" {
		bridge = defaultName
	}
	hash := fnv.New32a()
	hash.Write([]byte(bridge))
	return &kernel{netlink: h, tunnel: bridge + tunnelSuffix, metric: 1024 + int(hash.Sum32()%(1<<16))}, nil
}

// Close ends the connection to the kernel.
func (k *kernel) Close() { k.netlink.Close() }

// Path returns how this machine reaches an address, and false if it does not.
func (k *kernel) Path(to netip.Addr) (plan.Path, bool) {
	routes, err := k.netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return plan.Path{}, false
	}
	r := routes[0]
	path := plan.Path{Link: r.LinkIndex, Local: r.Type == unix.RTN_LOCAL, Direct: len(r.Gw) == 0 && r.Via == nil}
	if path.Local {
		if path.Link = k.linkOf(to); path.Link == 0 {
			return plan.Path{}, false
		}
	}
	link, err := k.netlink.LinkByIndex(path.Link)
	if err != nil {
		return plan.Path{}, false
	}
	path.MTU = link.Attrs().MTU
	return path, true
}

// linkOf returns the interface with an address, or 0.
func (k *kernel) linkOf(address netip.Addr) int {
	all, err := k.netlink.AddrList(nil, familyOf(address))
	if err != nil {
		return 0
	}
	for _, a := range all {
		if a.IP.Equal(address.AsSlice()) {
			return a.LinkIndex
		}
	}
	return 0
}

func familyOf(address netip.Addr) int {
	if address.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Apply makes the machine have a plan. It writes only what differs, and continues after
// errors of the MTU and the addresses of the tunnels, and of single peers and routes.
func (k *kernel) Apply(p plan.Plan) error {
	tunnel, err := k.applyTunnel(p.Tunnel)
	if err != nil && tunnel == 0 {
		return err
	}
	errs := []error{err}
	if tunnel != 0 {
		errs = append(errs, k.applyPeers(tunnel, p.Peers))
	}
	return errors.Join(append(errs, k.applyRoutes(tunnel, p.Routes))...)
}

// Remove removes all that Apply has made.
func (k *kernel) Remove() error { return k.Apply(plan.Plan{}) }

// applyTunnel makes the interface of tunnels, or removes it, and returns its index:
// 0 if there is none, or it cannot be used.
func (k *kernel) applyTunnel(want *plan.Tunnel) (int, error) {
	link, err := k.netlink.LinkByName(k.tunnel)
	if missing := (netlink.LinkNotFoundError{}); err != nil && !errors.As(err, &missing) {
		return 0, fmt.Errorf("look up the interface %s: %w", k.tunnel, err)
	}
	if err == nil && (want == nil || !isTunnel(link, want)) {
		if err := k.netlink.LinkDel(link); err != nil {
			return 0, fmt.Errorf("remove the interface %s: %w", k.tunnel, err)
		}
		link = nil
	} else if err != nil {
		link = nil
	}
	if want == nil {
		return 0, nil
	}
	if link == nil {
		if link, err = k.addTunnel(want); err != nil {
			return 0, err
		}
	}
	var errs []error
	if link.Attrs().MTU != want.MTU {
		if err := k.netlink.LinkSetMTU(link, want.MTU); err != nil {
			errs = append(errs, fmt.Errorf("set the MTU of the interface %s to %d: %w", k.tunnel, want.MTU, err))
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := k.netlink.LinkSetUp(link); err != nil {
			return 0, errors.Join(append(errs, fmt.Errorf("start the interface %s: %w", k.tunnel, err))...)
		}
	}
	return link.Attrs().Index, errors.Join(append(errs, k.applyInternal(link, want.Internal))...)
}

// isTunnel reports whether an interface is the wanted one, apart from its addresses.
func isTunnel(link netlink.Link, want *plan.Tunnel) bool {
	vxlan, ok := link.(*netlink.Vxlan)
	return ok && vxlan.VxlanId == vni && vxlan.Port == port && vxlan.VtepDevIndex == want.Link && !vxlan.Learning &&
		vxlan.SrcAddr.Equal(want.Address.AsSlice()) && string(vxlan.HardwareAddr) == string(want.MAC[:])
}

func (k *kernel) addTunnel(want *plan.Tunnel) (netlink.Link, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.HardwareAddr = k.tunnel, want.MAC[:]
	link := &netlink.Vxlan{LinkAttrs: attributes, VxlanId: vni, Port: port, VtepDevIndex: want.Link, SrcAddr: want.Address.AsSlice()}
	if err := k.netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("make the interface %s: %w (it needs the kernel module vxlan, and no other network with the VNI %d)", k.tunnel, err, vni)
	}
	return k.netlink.LinkByName(k.tunnel)
}

// applyInternal gives the interface of tunnels its addresses.
func (k *kernel) applyInternal(link netlink.Link, want []netip.Addr) error {
	have, err := k.netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", k.tunnel, err)
	}
	wanted := map[netip.Addr]bool{}
	for _, a := range want {
		wanted[a] = true
	}
	var errs []error
	for i := range have {
		address, _ := netip.AddrFromSlice(have[i].IP)
		if address = address.Unmap(); wanted[address] {
			delete(wanted, address)
		} else if !address.IsLinkLocalUnicast() {
			errs = append(errs, k.netlink.AddrDel(link, &have[i]))
		}
	}
	for address := range wanted {
		// Duplicates are not possible, and their detection takes a second.
		a := &netlink.Addr{IPNet: network(netip.PrefixFrom(address, address.BitLen())), Flags: unix.IFA_F_NODAD}
		if address.Is4() {
			a.Flags = 0
		}
		errs = append(errs, k.netlink.AddrAdd(link, a))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the addresses of %s: %w", k.tunnel, err)
	}
	return nil
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// neighbour is an entry by which the interface of tunnels finds a peer: of an address to
// its MAC or, of the family AF_BRIDGE, of the MAC to the address of its node.
type neighbour struct {
	family int
	ip     netip.Addr
	mac    plan.MAC
}

func neighboursOf(peers []plan.Peer) map[neighbour]bool {
	all := map[neighbour]bool{}
	for _, p := range peers {
		all[neighbour{unix.AF_BRIDGE, p.Node, p.MAC}] = true
		for _, ip := range p.Internal {
			all[neighbour{familyOf(ip), ip, p.MAC}] = true
		}
	}
	return all
}

func (n neighbour) entry(tunnel int) *netlink.Neigh {
	entry := &netlink.Neigh{LinkIndex: tunnel, Family: n.family, State: netlink.NUD_PERMANENT, IP: n.ip.AsSlice(), HardwareAddr: n.mac[:]}
	if n.family == unix.AF_BRIDGE {
		entry.Flags = netlink.NTF_SELF
	}
	return entry
}

// applyPeers writes the permanent neighbours of the interface of tunnels.
func (k *kernel) applyPeers(tunnel int, peers []plan.Peer) error {
	want := neighboursOf(peers)
	var errs []error
	for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		have, err := k.netlink.NeighList(tunnel, family)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i := range have {
			if have[i].State&netlink.NUD_PERMANENT == 0 || len(have[i].HardwareAddr) != len(plan.MAC{}) {
				continue
			}
			ip, _ := netip.AddrFromSlice(have[i].IP)
			n := neighbour{family, ip.Unmap(), plan.MAC(have[i].HardwareAddr)}
			if want[n] {
				delete(want, n)
				continue
			}
			errs = append(errs, ignore(k.netlink.NeighDel(n.entry(tunnel)), unix.ENOENT))
		}
	}
	for n := range want {
		errs = append(errs, k.netlink.NeighSet(n.entry(tunnel)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the neighbours of %s: %w", k.tunnel, err)
	}
	return nil
}

func ignore(err error, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// applyRoutes writes the routes to pods of other nodes.
func (k *kernel) applyRoutes(tunnel int, routes []plan.Route) error {
	want := map[netip.Prefix]*netlink.Route{}
	for _, r := range routes {
		route := &netlink.Route{Dst: network(r.To), Gw: r.Via.AsSlice(), LinkIndex: r.Link, Protocol: protocol, Priority: k.metric}
		if r.Link == 0 {
			route.LinkIndex, route.Flags = tunnel, int(netlink.FLAG_ONLINK)
		}
		want[r.To] = route
	}
	have, err := k.routes()
	if err != nil {
		return err
	}
	var errs []error
	for i := range have {
		to := prefixOf(have[i].Dst)
		if w := want[to]; w == nil {
			errs = append(errs, ignore(k.netlink.RouteDel(&have[i]), unix.ESRCH))
		} else if w.LinkIndex == have[i].LinkIndex && w.Gw.Equal(have[i].Gw) {
			delete(want, to)
		}
	}
	for to, route := range want {
		if err := k.netlink.RouteReplace(route); err != nil {
			errs = append(errs, fmt.Errorf("route %s via %s: %w", to, route.Gw, err))
		}
	}
	return errors.Join(errs...)
}

// routes returns the routes that this agent has made.
func (k *kernel) routes() ([]netlink.Route, error) {
	all, err := k.netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var own []netlink.Route
	for _, r := range all {
		if k.owns(r) {
			own = append(own, r)
		}
	}
	return own, nil
}

func (k *kernel) owns(r netlink.Route) bool {
	return r.Protocol == protocol && r.Priority == k.metric && r.Dst != nil
}

func prefixOf(n *net.IPNet) netip.Prefix {
	address, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), bits)
}

// Watch calls changed when a route of this agent is gone, or a link other than those of
// pods has changed, until ctx is done or the kernel drops events.
func (k *kernel) Watch(ctx context.Context, changed func()) error {
	watch, err := k.subscribe(ctx, changed)
	if err != nil {
		return err
	}
	return watch()
}

// subscribe returns what delivers the events from now on.
func (k *kernel) subscribe(ctx context.Context, changed func()) (watch func() error, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	failed := func(err error) { cancel(err) }
	// Each subscription closes its channel at its end.
	routes, links := make(chan netlink.RouteUpdate), make(chan netlink.LinkUpdate)
	if err := netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: failed}); err != nil {
		cancel(nil)
		return nil, fmt.Errorf("watch routes: %w", err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel(nil)
		for r := range routes {
			if r.Type == unix.RTM_DELROUTE && k.owns(r.Route) {
				changed()
			}
		}
	})
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: failed}); err != nil {
		cancel(nil)
		watching.Wait()
		return nil, fmt.Errorf("watch network interfaces: %w", err)
	}
	return func() error {
		for l := range links {
			if l.Link.Type() != "veth" && l.Attrs().MasterIndex == 0 {
				changed()
			}
		}
		cancel(nil)
		watching.Wait()
		return context.Cause(ctx)
	}, nil
}
