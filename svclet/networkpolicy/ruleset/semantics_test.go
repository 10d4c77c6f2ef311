package ruleset_test

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// side is one end of a connection; pod is nil outside of the cluster.
type side struct {
	address netip.Addr
	pod     *corev1.Pod
}

// connection is the first packet of a connection that this node forwards.
type connection struct {
	from, to side
	protocol corev1.Protocol
	port     int32
}

func (c connection) String() string {
	return fmt.Sprintf("%s from %s to %s port %d", c.protocol, c.from.address, c.to.address, c.port)
}

// allowed reports whether the policies allow a connection, as the documentation of
// networking.k8s.io/v1 defines it, as far as this node filters it.
func (w *world) allowed(c connection) bool {
	if c.from.address == c.to.address {
		return true
	}
	return w.allows(c.from.pod, networkingv1.PolicyTypeEgress, c) && w.allows(c.to.pod, networkingv1.PolicyTypeIngress, c)
}

// allows reports whether the policies of a pod allow a connection in a direction.
func (w *world) allows(pod *corev1.Pod, direction networkingv1.PolicyType, c connection) bool {
	if pod == nil || pod.Spec.NodeName != "here" {
		return true
	}
	isolated := false
	for _, p := range w.policies {
		if p.Namespace != pod.Namespace || !w.matches(&p.Spec.PodSelector, pod.Labels) || !applies(p, direction) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeEgress {
			if slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
				return w.anyPeer(p.Namespace, r.To, c.to) && anyPort(r.Ports, c)
			}) {
				return true
			}
			continue
		}
		if slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
			return w.anyPeer(p.Namespace, r.From, c.from) && anyPort(r.Ports, c)
		}) {
			return true
		}
	}
	return !isolated
}

func applies(p *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return direction == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	return slices.Contains(p.Spec.PolicyTypes, direction)
}

func (w *world) anyPeer(namespace string, peers []networkingv1.NetworkPolicyPeer, s side) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return w.isPeer(namespace, p, s) })
}

func (w *world) isPeer(namespace string, peer networkingv1.NetworkPolicyPeer, s side) bool {
	if b := peer.IPBlock; b != nil {
		return netip.MustParsePrefix(b.CIDR).Contains(s.address) &&
			!slices.ContainsFunc(b.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(s.address) })
	}
	if s.pod == nil {
		return false
	}
	if peer.NamespaceSelector == nil {
		return s.pod.Namespace == namespace && w.matches(peer.PodSelector, s.pod.Labels)
	}
	of, known := w.namespaces[s.pod.Namespace]
	return known && w.matches(peer.NamespaceSelector, of) && (peer.PodSelector == nil || w.matches(peer.PodSelector, s.pod.Labels))
}

// matches reports whether a selector selects labels. The selectors of policies do not
// change: each is parsed once.
func (w *world) matches(s *metav1.LabelSelector, l map[string]string) bool {
	selector, parsed := w.selectors[s]
	if !parsed {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
			panic(err)
		}
		w.selectors[s] = selector
	}
	return selector.Matches(labels.Set(l))
}

func anyPort(ports []networkingv1.NetworkPolicyPort, c connection) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case ptr.Deref(p.Protocol, corev1.ProtocolTCP) != c.protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.Int:
			return c.port >= p.Port.IntVal && c.port <= ptr.Deref(p.EndPort, p.Port.IntVal)
		}
		return c.to.pod != nil && slices.ContainsFunc(c.to.pod.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool {
			protocol := port.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			return port.Name == p.Port.StrVal && port.ContainerPort == c.port && protocol == c.protocol
		})
	})
}
