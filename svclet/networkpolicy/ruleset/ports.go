package ruleset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// matchPorts returns expressions of which one is true for the ports; without ports one
// that is always true, for all protocols.
func (a *allowed) matchPorts(f family, ports []networkingv1.NetworkPolicyPort) [][]string {
	if len(ports) == 0 {
		return [][]string{nil}
	}
	var matches [][]string
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		matches = append(matches, a.matchProtocol(f, protocol, ports)...)
	}
	return matches
}

func (a *allowed) matchProtocol(f family, protocol corev1.Protocol, ports []networkingv1.NetworkPolicyPort) [][]string {
	var numbers []interval
	var matches [][]string
	name := lower(protocol)
	for _, port := range ports {
		switch {
		case ptr.Deref(port.Protocol, corev1.ProtocolTCP) != protocol:
		case port.Port == nil:
			return [][]string{{"meta l4proto", name}}
		case port.Port.Type == intstr.String:
			g := named(protocol, port.Port.StrVal)
			a.groups[g.name] = g
			matches = append(matches, []string{f.ip(), "daddr .", name, "dport", "@" + g.name})
		default:
			numbers = append(numbers, interval{port.Port.IntVal, ptr.Deref(port.EndPort, port.Port.IntVal)})
		}
	}
	if len(numbers) > 0 {
		matches = append(matches, []string{name, "dport", intervals(numbers)})
	}
	return matches
}

// interval is a range of ports, both ends included.
type interval struct{ first, last int32 }

func (i interval) String() string {
	if i.first == i.last {
		return fmt.Sprint(i.first)
	}
	return fmt.Sprintf("%d-%d", i.first, i.last)
}

// intervals returns the notation of a set of ports, whose intervals must not overlap.
func intervals(all []interval) string {
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	merged := all[:1]
	for _, next := range all[1:] {
		if last := &merged[len(merged)-1]; next.first <= last.last {
			last.last = max(last.last, next.last)
		} else {
			merged = append(merged, next)
		}
	}
	if len(merged) == 1 {
		return merged[0].String()
	}
	texts := make([]string, len(merged))
	for i, m := range merged {
		texts[i] = m.String()
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}
