package nodeconfig

import (
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ParseNodeIPs parses --node-ip: one IP address, or one of each IP family,
// separated by a comma. It returns nil if the flag is empty.
func ParseNodeIPs(flag string) ([]net.IP, error) {
	if flag == "" {
		return nil, nil
	}
	var ips []net.IP
	for part := range strings.SplitSeq(flag, ",") {
		ip := net.ParseIP(strings.TrimSpace(part))
		if ip == nil {
			return nil, fmt.Errorf("--node-ip: invalid IP address %q", part)
		}
		ips = append(ips, ip)
	}
	if len(ips) > 2 || len(ips) == 2 && (ips[0].To4() == nil) == (ips[1].To4() == nil) {
		return nil, fmt.Errorf("--node-ip: invalid value %q: must be one IP address, or one of each IP family", flag)
	}
	return ips, nil
}

// HostIPs returns the internal IP addresses of a Node, the primary one first, at
// most one of each IP family: status.hostIPs of its pods.
func HostIPs(node *corev1.Node) []string {
	var ips []string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP && len(ips) < 2 {
			ips = append(ips, address.Address)
		}
	}
	return ips
}
