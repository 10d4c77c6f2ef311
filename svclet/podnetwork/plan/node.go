package plan

import (
	"crypto/sha256"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// NodeOf returns what a pod network needs of a Node.
func NodeOf(n *corev1.Node) Node {
	node := Node{Name: n.Name, Created: n.CreationTimestamp.Unix()}
	for _, a := range n.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && address.Zone() == "" {
			node.Addresses = append(node.Addresses, address.Unmap())
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, cidr.Masked())
		}
	}
	return node
}

// MAC is the address of a tunnel's end on its network.
type MAC [6]byte

// macOf returns the MAC of the tunnel's end at a node, which follows from the node's
// address: so nodes need not tell it to each other. 02 means that it is not a
// manufacturer's.
func macOf(node netip.Addr) MAC {
	if node.Is4() {
		b := node.As4()
		return MAC{0x02, 0x73, b[0], b[1], b[2], b[3]}
	}
	sum := sha256.Sum256(node.AsSlice())
	return MAC{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}
}
