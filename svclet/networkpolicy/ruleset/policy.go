package ruleset

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// direction is one in which connections are filtered.
type direction int

const (
	egress direction = iota
	ingress
	directions
)

func (d direction) String() string { return [directions]string{"egress", "ingress"}[d] }

// peer returns the field of a packet's header with the address of the other side.
func (d direction) peer() string { return [directions]string{"daddr", "saddr"}[d] }

// policy is a network policy in the words of nft.
type policy struct {
	selector labels.Selector
	// allowed has the connections that the policy allows in a direction; nil if it does
	// not filter this direction.
	allowed [directions]*allowed
}

// allowed are rules, each of which ends with "return" for the connections that it
// allows, and the groups that they refer to by the names of their sets.
type allowed struct {
	rules  [families][]string
	groups map[string]group
}

// rule is a rule of a policy, of either direction.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// compile returns the policy in the words of nft.
func compile(p *networkingv1.NetworkPolicy) *policy {
	compiled := &policy{selector: selector(&p.Spec.PodSelector, labels.Everything())}
	var rules [directions][]rule
	for _, r := range p.Spec.Ingress {
		rules[ingress] = append(rules[ingress], rule{r.From, r.Ports})
	}
	for _, r := range p.Spec.Egress {
		rules[egress] = append(rules[egress], rule{r.To, r.Ports})
	}
	for d, name := range map[direction]networkingv1.PolicyType{ingress: networkingv1.PolicyTypeIngress, egress: networkingv1.PolicyTypeEgress} {
		if !slices.Contains(typesOf(p), name) {
			continue
		}
		a := &allowed{groups: map[string]group{}}
		for _, r := range rules[d] {
			a.add(d, p.Namespace, r)
		}
		compiled.allowed[d] = a
	}
	return compiled
}

// typesOf returns the directions that a policy filters; the API server sets them by
// default as here.
func typesOf(p *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	if len(p.Spec.PolicyTypes) > 0 {
		return p.Spec.PolicyTypes
	}
	defaults := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		defaults = append(defaults, networkingv1.PolicyTypeEgress)
	}
	return defaults
}

// selector returns a selector of labels, or the other one for an invalid selector, which
// the API server accepts in no policy: what it selects is unknown, and that must not
// allow more connections.
func selector(s *metav1.LabelSelector, invalid labels.Selector) labels.Selector {
	valid, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return invalid
	}
	return valid
}

// add adds a rule: each of its peers with each of its ports.
func (a *allowed) add(d direction, namespace string, r rule) {
	for f := range families {
		for _, peer := range a.matchPeers(d, f, namespace, r.peers) {
			for _, port := range a.matchPorts(f, r.ports) {
				match := append(slices.Clone(peer), port...)
				a.rules[f] = append(a.rules[f], strings.Join(append(match, "return"), " "))
			}
		}
	}
}

// matchPeers returns expressions of which one is true for the peers; without peers one
// that is always true.
func (a *allowed) matchPeers(d direction, f family, namespace string, peers []networkingv1.NetworkPolicyPeer) [][]string {
	if len(peers) == 0 {
		return [][]string{nil}
	}
	field := f.ip() + " " + d.peer()
	var matches [][]string
	var whole []netip.Prefix // blocks without exceptions
	for _, peer := range peers {
		if peer.IPBlock != nil {
			block, except, ok := blockOf(f, peer.IPBlock)
			switch {
			case !ok:
			case len(except) == 0:
				whole = append(whole, block)
			default:
				matches = append(matches, append(within(field, []netip.Prefix{block}), field, "!=", list(except)))
			}
			continue
		}
		g := groupOf(namespace, peer)
		a.groups[g.name] = g
		matches = append(matches, []string{field, "@" + g.name})
	}
	if len(whole) > 0 {
		matches = append(matches, within(field, whole))
	}
	return matches
}

func groupOf(namespace string, peer networkingv1.NetworkPolicyPeer) group {
	pods := labels.Everything()
	if peer.PodSelector != nil {
		pods = selector(peer.PodSelector, labels.Nothing())
	}
	if peer.NamespaceSelector == nil {
		return selected(namespace, nil, pods)
	}
	return selected(namespace, selector(peer.NamespaceSelector, labels.Nothing()), pods)
}
