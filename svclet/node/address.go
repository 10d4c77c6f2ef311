package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	netutils "k8s.io/utils/net"
)

// Network finds addresses of the machine.
type Network interface {
	// Lookup resolves a name.
	Lookup(ctx context.Context, name string) ([]net.IP, error)
	// Default returns the address of the interface with the default route, of the IP
	// family of prefer unless that is nil.
	Default(prefer net.IP) (net.IP, error)
	// Local returns the addresses of all interfaces.
	Local() ([]net.IP, error)
}

// hostNetwork is the network of this machine.
type hostNetwork struct{}

// Lookup implements Network.
func (hostNetwork) Lookup(ctx context.Context, name string) ([]net.IP, error) {
	return net.DefaultResolver.LookupIP(ctx, "ip", name)
}

// Default implements Network.
func (hostNetwork) Default(prefer net.IP) (net.IP, error) { return utilnet.ResolveBindAddress(prefer) }

// Local implements Network.
func (hostNetwork) Local() ([]net.IP, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var ips []net.IP
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok {
			ips = append(ips, n.IP)
		}
	}
	return ips, nil
}

const (
	// addressFrequency is how often the addresses are determined.
	addressFrequency = time.Minute
	// lookupTimeout bounds the resolution of the node's name.
	lookupTimeout = 2 * time.Second
)

// resolved are the node's addresses as last determined.
type resolved struct {
	at        time.Time
	addresses []corev1.NodeAddress
	lastNote  string
}

// update returns the node's addresses, and determines them again after
// addressFrequency. It returns nil if they have never been found.
func (r *resolved) update(ctx context.Context, o *Options) []corev1.NodeAddress {
	now := o.Clock.Now()
	if r.addresses != nil && now.Sub(r.at) < addressFrequency {
		return r.addresses
	}
	addresses, note, err := addresses(ctx, o)
	if err != nil {
		note = err.Error()
	} else {
		r.at, r.addresses = now, addresses
	}
	if note != r.lastNote && note != "" {
		klog.FromContext(ctx).Info("Determined node addresses", "node", klog.KRef("", o.Name), "addresses", r.addresses, "note", note)
	}
	r.lastNote = note
	return r.addresses
}

// Addresses determines the node's addresses now. An agent without a Node in the API
// has them before Run.
func (n *Node) Addresses(ctx context.Context) ([]corev1.NodeAddress, error) {
	found, _, err := addresses(ctx, &n.o)
	return found, err
}

// addresses determines the node's addresses. note describes what is unusual about
// them.
func addresses(ctx context.Context, o *Options) (found []corev1.NodeAddress, note string, err error) {
	var ips []net.IP
	for _, ip := range o.IPs {
		if ip.IsUnspecified() {
			continue
		}
		if err := usable(ip, o.Network); err != nil {
			return nil, "", fmt.Errorf("--node-ip %s: %w", ip, err)
		}
		ips = append(ips, ip)
	}
	if len(ips) == 0 {
		var ip net.IP
		if ip, note, err = findAddress(ctx, o); err != nil {
			return nil, "", err
		}
		ips = []net.IP{ip}
	}
	for _, ip := range ips {
		found = append(found, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(found, corev1.NodeAddress{Type: corev1.NodeHostName, Address: o.Hostname}), note, nil
}

// findAddress determines an address of the node: its host name, if that is an
// address, else the address that the name resolves to, else that of the interface
// with the default route, else, on a machine without a network, any address.
func findAddress(ctx context.Context, o *Options) (ip net.IP, note string, err error) {
	if ip := netutils.ParseIPSloppy(o.Hostname); ip != nil {
		return ip, "", nil
	}
	var prefer net.IP
	if len(o.IPs) > 0 {
		prefer = o.IPs[0]
	}
	want4 := prefer == nil || prefer.To4() != nil
	limited, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	// It is not an error if the name does not resolve.
	named, _ := o.Network.Lookup(limited, o.Name)
	named = slices.DeleteFunc(named, func(ip net.IP) bool { return usable(ip, o.Network) != nil })
	if ip := preferred(named, want4); ip != nil {
		return ip, "", nil
	}
	ip, err = o.Network.Default(prefer)
	if err == nil && ip != nil {
		return ip, "", nil
	}
	local, localErr := o.Network.Local()
	if localErr != nil {
		return nil, "", fmt.Errorf("can't get ip address of node %s: %w", o.Name, errors.Join(err, localErr))
	}
	global := slices.DeleteFunc(slices.Clone(local), func(ip net.IP) bool { return !ip.IsGlobalUnicast() })
	if ip := preferred(global, want4); ip != nil {
		return ip, "this machine has no default route: set --node-ip if this is not the address", nil
	}
	loopback := slices.DeleteFunc(slices.Clone(local), func(ip net.IP) bool { return !ip.IsLoopback() })
	if ip := preferred(loopback, want4); ip != nil {
		return ip, "this machine has no network: no other machine can reach the node", nil
	}
	return nil, "", fmt.Errorf("can't get ip address of node %s: this machine has none: %w", o.Name, err)
}

// preferred returns the first address of the wanted family, or else the first
// address.
func preferred(ips []net.IP, want4 bool) net.IP {
	if i := slices.IndexFunc(ips, func(ip net.IP) bool { return (ip.To4() != nil) == want4 }); i >= 0 {
		return ips[i]
	}
	if len(ips) > 0 {
		return ips[0]
	}
	return nil
}

// usable returns an error if an address cannot be an address of this node.
func usable(ip net.IP, network Network) error {
	switch {
	case ip.To16() == nil:
		return errors.New("must be a valid IP address")
	case ip.IsLoopback():
		return errors.New("can't be loopback address")
	case ip.IsMulticast():
		return errors.New("can't be a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("can't be a link-local unicast address")
	case ip.IsUnspecified():
		return errors.New("can't be an all zeros address")
	}
	local, err := network.Local()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(local, ip.Equal) {
		return errors.New("not found in the host's network interfaces")
	}
	return nil
}
