package ruleset

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Pod is what the rules need of a pod.
type Pod struct {
	Namespace string
	Labels    labels.Set
	Addresses []netip.Addr
	Ports     []Port
	// Local is true for a pod of this node, whose connections this node filters.
	Local bool
}

// Port is a container port with a name.
type Port struct {
	Name     string
	Protocol corev1.Protocol
	Number   int32
}

// PodOf returns what the rules need of a pod with the addresses of its status. found is
// false for one that policies do not concern: one on the network of its node, or one
// that has ended and whose addresses may be those of another pod.
func PodOf(p *corev1.Pod, node string) (pod Pod, found bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	pod = Pod{Namespace: p.Namespace, Labels: p.Labels, Local: p.Spec.NodeName == node}
	for _, ip := range p.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			pod.Addresses = append(pod.Addresses, address)
		}
	}
	for i := range p.Spec.Containers {
		pod.addPorts(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		// Sidecars serve beside the containers (KEP-753).
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			pod.addPorts(c)
		}
	}
	return pod, true
}

func (p *Pod) addPorts(c *corev1.Container) {
	for _, port := range c.Ports {
		if port.Name == "" {
			continue
		}
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		p.Ports = append(p.Ports, Port{port.Name, protocol, port.ContainerPort})
	}
}
