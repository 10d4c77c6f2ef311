package networkpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

// ports is the table of the bridge, which lets each pod of the node send from its own
// addresses only: the rules of policies know a pod by its address. CNI's results say which
// port of the bridge, that is which interface of the node, and which addresses a pod has.
// They are complete before a pod has its first container, and go with its last sandbox.
// What other ports send passes.
type ports struct {
	nft knftables.Interface
	// prefix is that of the paths of CNI's results of this bridge's pods.
	prefix, bridge string
	// results are those that have been read, by their path: they do not change.
	results map[string][]portElement
	// written is whether the table has these elements. Without, what it has is not known.
	written  bool
	elements map[portElement]bool
	// failed is whether the last attempt to write the table has failed.
	failed bool
}

// portElement is an element of a set.
type portElement struct{ set, key string }

const (
	portChain = "prerouting"
	// advertisedChain has a rule for each address of IPv6 that a port may advertise.
	advertisedChain = "advertised"
	portSet         = "ports"
	// portAddresses is what the names of the sets of ports with their addresses begin with.
	portAddresses = "addresses-"
)

// portSets are the types of the sets.
func portSets() map[string]string {
	return map[string]string{portSet: "ifname", portAddresses + "ip": "ifname . ipv4_addr", portAddresses + "ip6": "ifname . ipv6_addr"}
}

// portRules are the rules. Link-local addresses of IPv6, by which pods find each other, are the
// business of the hook forward. It does not see frames with a VLAN tag, which receivers
// accept if the tag is that of VLAN 0.
func portRules() []string {
	return []string{
		"iifname @ports ether type { 8021q, 8021ad } counter drop",
		"iifname @ports iifname . ip saddr != @addresses-ip counter drop",
		"iifname @ports arp saddr ip != 0.0.0.0 iifname . arp saddr ip != @addresses-ip counter drop",
		"iifname @ports ip6 saddr != { ::, fe80::/10 } iifname . ip6 saddr != @addresses-ip6 counter drop",
		"iifname @ports icmpv6 type nd-neighbor-advert @th,64,16 & 0xffc0 != 0xfe80 jump " + advertisedChain,
	}
}

// advertisedRules are the rules of neighbour advertisements by the ports with these elements. The
// address that is advertised, the target, is 64 bits behind the beginning of the message (RFC 4861,
// section 4.4). nftables has no name for it before 1.0.9, and no sets of what has none before 1.0.3.
func advertisedRules(elements map[portElement]bool) []string {
	var rules []string
	for e := range elements {
		if e.set == portAddresses+"ip6" {
			port, address, _ := strings.Cut(e.key, " . ")
			rules = append(rules, fmt.Sprintf("iifname %q @th,64,128 %#x return", port, netip.MustParseAddr(address).AsSlice()))
		}
	}
	slices.Sort(rules)
	return append(rules, "counter drop")
}

func newPorts(tables knftables.Interface, bridge, results string) *ports {
	return &ports{nft: tables, bridge: bridge, prefix: filepath.Join(results, bridge+"-"), results: map[string][]portElement{}}
}

// keep is sync for a loop: it reports whether no retry is to come soon. Pods start also if the
// table cannot be written: only the first failure is logged and followed by a retry, later ones
// by that of the next check or change.
func (p *ports) keep(ctx context.Context, guarded bool) bool {
	err := p.sync(ctx, guarded)
	again := p.failed
	if p.failed = err != nil; p.failed && !again && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to write rules of the ports of pods, which can send from each other's addresses, will retry")
	}
	return !p.failed || again
}

// sync writes the ports of the pods that there are or, unless guarded, removes the table.
func (p *ports) sync(ctx context.Context, guarded bool) error {
	var want map[portElement]bool // nil for no table
	if guarded {
		var err error
		if want, err = p.read(ctx); err != nil {
			return err
		}
	}
	tx := p.nft.NewTransaction()
	switch {
	case p.written && guarded && p.elements != nil:
	case p.written && !guarded && p.elements == nil:
		return nil
	default:
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		p.elements = nil
		if guarded {
			create(tx)
		}
	}
	for e := range p.elements {
		if !want[e] {
			tx.Delete(e.element())
		}
	}
	for e := range want {
		if !p.elements[e] {
			tx.Add(e.element())
		}
	}
	if rules := advertisedRules(want); guarded && !slices.Equal(rules, advertisedRules(p.elements)) {
		tx.Flush(&knftables.Chain{Name: advertisedChain})
		for _, rule := range rules {
			tx.Add(&knftables.Rule{Chain: advertisedChain, Rule: rule})
		}
	}
	p.written = false
	if tx.NumOperations() > 0 {
		if err := p.nft.Run(ctx, tx); err != nil {
			return err
		}
	}
	p.written, p.elements = true, want
	return nil
}

func create(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{Comment: ptr.To(portComment)})
	tx.Add(&knftables.Chain{Name: portChain, Type: ptr.To(knftables.FilterType), Hook: ptr.To(knftables.PreroutingHook), Priority: ptr.To(knftables.FilterPriority)})
	tx.Add(&knftables.Chain{Name: advertisedChain})
	for name, kind := range portSets() {
		tx.Add(&knftables.Set{Name: name, Type: kind})
	}
	for chain, rules := range map[string][]string{portChain: portRules(), advertisedChain: advertisedRules(nil)} {
		for _, rule := range rules {
			tx.Add(&knftables.Rule{Chain: chain, Rule: rule})
		}
	}
}

const portComment = "Kubernetes network policies: pods send from their own addresses only, by svclet"

func (e portElement) element() *knftables.Element {
	return &knftables.Element{Set: e.set, Key: strings.Split(e.key, " . ")}
}

// verify reports whether the table is missing that was written.
func (p *ports) verify(ctx context.Context) (missing bool, err error) {
	if !p.written || p.elements == nil {
		return false, nil
	}
	there, err := nft.HasRules(ctx, p.nft, p.content().Rules)
	if err != nil || there {
		return false, err
	}
	klog.FromContext(ctx).Info("Rules of the ports of pods are missing, writing them again")
	p.written = false
	return true, nil
}

// content returns what the table has.
func (p *ports) content() nft.Content {
	c := nft.Content{
		Rules:    map[string]int{portChain: len(portRules()), advertisedChain: len(advertisedRules(p.elements))},
		Elements: map[string]int{},
	}
	for name := range portSets() {
		c.Elements[name] = 0
	}
	for e := range p.elements {
		c.Elements[e.set]++
	}
	return c
}

// read returns the elements of all pods that CNI has results of.
func (p *ports) read(ctx context.Context) (map[portElement]bool, error) {
	files, err := filepath.Glob(p.prefix + "*")
	if err != nil {
		return nil, err
	}
	results, all := map[string][]portElement{}, map[portElement]bool{}
	for _, file := range files {
		elements, known := p.results[file]
		if !known {
			if elements, err = readResult(file, p.bridge); err != nil {
				// It is being written or removed: its pod has no container.
				klog.FromContext(ctx).V(2).Info("Failed to read the network of a pod, its addresses are not bound to its interface", "file", file, "err", err)
				continue
			}
		}
		results[file] = elements
		for _, e := range elements {
			all[e] = true
		}
	}
	p.results = results
	return all, nil
}

// cached is what libcni keeps of a pod's network.
type cached struct {
	Result struct {
		Interfaces []struct {
			Name    string `json:"name"`
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
		IPs []struct {
			Interface *int         `json:"interface"`
			Address   netip.Prefix `json:"address"`
		} `json:"ips"`
	} `json:"result"`
}

// readResult reads the elements of a pod. The plugin bridge lists the bridge, its port, and the
// pod's interface.
func readResult(file, bridge string) ([]portElement, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var c cached
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, err
	}
	var port string
	for _, i := range c.Result.Interfaces {
		if i.Sandbox != "" || i.Name == bridge {
			continue
		}
		if port != "" {
			return nil, fmt.Errorf("it names two ports of the bridge, %s and %s", port, i.Name)
		}
		port = i.Name
	}
	if port == "" || len(c.Result.IPs) == 0 {
		return nil, fmt.Errorf("it names the port %q and %d addresses", port, len(c.Result.IPs))
	}
	elements := []portElement{{portSet, port}}
	for _, ip := range c.Result.IPs {
		set := portAddresses + "ip"
		if ip.Address.Addr().Is6() {
			set += "6"
		}
		elements = append(elements, portElement{set, port + " . " + ip.Address.Addr().String()})
	}
	return elements, nil
}
