package certificates

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"

	"svc.dev/svc/internal/fleetaddress"
)

// The names of the pairs in --cert-dir: PAIR-current.pem is a link to the pair in use.
const (
	clientPair  = "svclet-client"
	servingPair = "svclet-server"
)

// subject is the user of a node, with which the signers for nodes agree.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// clientRequest is a request for a client certificate of an agent.
type clientRequest struct {
	subject pkix.Name
	signer  string
}

// newClientRequest returns the request of a node for a certificate with which it uses the
// API server at a URL. At the own address of a fleet the certificate is the host's, for a
// user that no node of the host is, and an administrator approves the request.
func newClientRequest(node, server string) clientRequest {
	if _, domain, ok := fleetaddress.Split(server); ok {
		name := pkix.Name{CommonName: fleetaddress.MachineUser(domain, node), Organization: []string{fleetaddress.MachineGroup(domain)}}
		return clientRequest{name, certificatesv1.KubeAPIServerClientSignerName}
	}
	return clientRequest{subject(node), certificatesv1.KubeAPIServerClientKubeletSignerName}
}

// servingTemplate returns the request for a serving certificate of a node with these
// addresses, or nil if it has no IP address yet.
func servingTemplate(node string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	names, ips := Hosts(addresses)
	if len(ips) == 0 {
		return nil
	}
	return &x509.CertificateRequest{Subject: subject(node), DNSNames: names, IPAddresses: ips}
}

// Hosts returns the names and the IP addresses of a node that its serving certificate
// contains, sorted and without repetitions.
func Hosts(addresses []corev1.NodeAddress) (names []string, ips []net.IP) {
	var texts []string
	for _, address := range addresses {
		ip := netutils.ParseIPSloppy(address.Address)
		switch address.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName:
			if ip != nil {
				texts = append(texts, ip.String())
			} else if address.Type == corev1.NodeHostName && address.Address != "" {
				names = append(names, address.Address)
			}
		case corev1.NodeInternalDNS, corev1.NodeExternalDNS:
			if address.Address != "" {
				names = append(names, address.Address)
			}
		}
	}
	slices.Sort(names)
	slices.Sort(texts)
	for _, text := range slices.Compact(texts) {
		ips = append(ips, net.ParseIP(text))
	}
	return slices.Compact(names), ips
}
