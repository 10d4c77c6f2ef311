package resource

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Agents is how the API server reaches the agents of nodes.
type Agents struct {
	// AddressTypes are the types of a node's addresses, the preferred first
	// (flag --svclet-preferred-address-types).
	AddressTypes []corev1.NodeAddressType
	// Transport verifies agents by the authority of --svclet-certificate-authority;
	// Unverified does not. Other is for pods, services and ports of nodes other
	// than the agent's.
	Transport, Unverified, Other http.RoundTripper
}

// agentPort is the port of a node's agent if the Node names none (document 3,
// section 4).
const agentPort = 10250

// URL returns the URL of a path of a node's agent. Its errors are apierrors.
func (a Agents) URL(n *corev1.Node, path string) (*url.URL, error) {
	host, err := a.address(n)
	if err != nil {
		return nil, err
	}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = agentPort
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port))), Path: path}, nil
}

// address returns the node's address of the most preferred type that it has.
func (a Agents) address(n *corev1.Node) (string, error) {
	for _, want := range a.AddressTypes {
		i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == want && a.Address != "" })
		if i >= 0 {
			return n.Status.Addresses[i].Address, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has none of these addresses: %v (--svclet-preferred-address-types)", n.Name, a.AddressTypes))
}

// Verified returns Transport, or an apierror if the server has none.
func (a Agents) Verified() (http.RoundTripper, error) {
	if a.Transport == nil {
		return nil, apierrors.NewServiceUnavailable("this API server trusts no node's agent: it was started without --svclet-certificate-authority")
	}
	return a.Transport, nil
}
