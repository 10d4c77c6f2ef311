package container

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hostsPath is the path of the hosts file in a container.
const hostsPath = "/etc/hosts"

const (
	hostsHeader     = "# Kubernetes-managed hosts file.\n"
	hostsHeaderNode = "# Kubernetes-managed hosts file (host network).\n"
	hostsLocal      = "127.0.0.1\tlocalhost\n" +
		"::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\n" +
		"fe00::0\tip6-mcastprefix\n" +
		"fe00::1\tip6-allnodes\n" +
		"fe00::2\tip6-allrouters\n"
)

// HostsFile returns the content of a pod's /etc/hosts. nodeHosts is the node's,
// which pods on the host network get.
func HostsFile(o Options, pod *corev1.Pod, podIPs []string, nodeHosts []byte) ([]byte, error) {
	var content bytes.Buffer
	if pod.Spec.HostNetwork {
		content.WriteString(hostsHeaderNode)
		content.Write(nodeHosts)
	} else {
		name, domain, err := Hostname(o, pod)
		if err != nil {
			return nil, err
		}
		content.WriteString(hostsHeader)
		content.WriteString(hostsLocal)
		for _, ip := range podIPs {
			if domain == "" {
				fmt.Fprintf(&content, "%s\t%s\n", ip, name)
			} else {
				fmt.Fprintf(&content, "%s\t%s.%s\t%s\n", ip, name, domain, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		content.WriteString("\n# Entries added by HostAliases.\n")
		for _, alias := range pod.Spec.HostAliases {
			fmt.Fprintf(&content, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		}
	}
	return content.Bytes(), nil
}
