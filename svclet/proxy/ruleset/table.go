//go:build linux

package ruleset

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

// The maps of a table, by which a packet's destination finds the chain of its service.
const (
	clusterIPs  = "cluster-ips"
	externalIPs = "external-ips"
	nodePorts   = "node-ports"
	// closedIPs, closedExternalIPs and closedPorts are the addresses and node ports
	// without endpoints.
	closedIPs         = "closed-ips"
	closedExternalIPs = "closed-external-ips"
	closedPorts       = "closed-node-ports"
	// guardedIPs are the addresses of load balancers with source ranges.
	guardedIPs = "guarded-ips"
	// hairpins are pairs of the same address: of endpoints that may be on this node, which
	// would answer themselves directly when they reach themselves through a service. They may
	// be addresses of the node itself, whose other connections to itself stay as they are.
	hairpins = "hairpins"
	// podRanges is the set of this node's ranges of pod addresses.
	podRanges = "pod-ranges"
)

// maxSlots is up to how many endpoints an address or node port has them in maps, and else in a
// chain. The map of the slot 0 has an endpoint of each such key, that of the slot 1 a second one, and
// so on; chains that all share choose a slot. So a change of endpoints only changes
// elements: after new rules the kernel looks for loops in all rules of the table, which takes as
// long as there are services.
const maxSlots = 8

// slotted are the maps whose keys may have slots, with what the names of these contain. A
// key of one may be one of another, too, with other endpoints.
func slotted() map[string]string {
	return map[string]string{clusterIPs: "", externalIPs: "external-", nodePorts: "node-port-"}
}

// slotMap returns the name of the map of a slot for the keys of a map.
func slotMap(of string, slot int) string { return fmt.Sprintf("%sendpoint-%d", slotted()[of], slot) }

// slotChain returns the name of the chain that leads to the endpoint in a slot.
func slotChain(of string, slot int) string {
	return fmt.Sprintf("to-%sendpoint-%d", slotted()[of], slot)
}

// choiceChain returns the name of the chain that chooses one of the first n slots.
func choiceChain(of string, n int) string { return fmt.Sprintf("choose-%sof-%d", slotted()[of], n) }

const (
	masqueradeChain = "mark-for-masquerade"
	rejectChain     = "reject-connection"
	dropChain       = "drop-connection"
	// masqueradeMark is the bit of a packet's mark by which the chain of the hook
	// postrouting knows it. kube-proxy uses the same.
	masqueradeMark = "0x4000"
)

// Table describes the table of a node.
type Table struct {
	Family corev1.IPFamily
	// Bridge is the interface of this node's pods; only they reach cluster IPs. Empty
	// if another runtime connects pods: then all interfaces do.
	Bridge string
	// Servers are addresses of this node that only it and the pods of its bridge may
	// connect to.
	Servers []netip.Addr
	// PodRanges are the node's ranges of pod addresses, of any family.
	PodRanges []string
}

// Protocol returns nft's name of an IP family in expressions.
func Protocol(family corev1.IPFamily) string {
	if family == corev1.IPv6Protocol {
		return "ip6"
	}
	return "ip"
}

// Create adds the table, without services, to a transaction. It replaces what the table
// had. It returns the number of rules of each chain by which the kernel enters the table.
func (t Table) Create(tx *knftables.Transaction) map[string]int {
	tx.Add(&knftables.Table{Comment: ptr.To("Kubernetes services, by svclet")})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: ptr.To("Kubernetes services, by svclet")})
	t.createMaps(tx)
	for _, name := range []string{masqueradeChain, rejectChain, dropChain} {
		tx.Add(&knftables.Chain{Name: name})
	}
	rule(tx, masqueradeChain, "meta mark set mark or "+masqueradeMark)
	rule(tx, rejectChain, "reject")
	rule(tx, dropChain, "drop")
	for _, of := range slices.Sorted(maps.Keys(slotted())) {
		t.createSlots(tx, of)
	}
	return t.createHooks(tx)
}

// createSlots adds the slots of a map's keys. What comes from outside the cluster gets the
// node's address: see external.
func (t Table) createSlots(tx *knftables.Transaction, of string) {
	ip := Protocol(t.Family)
	address := t.addressType()
	kind, key := address+" . inet_proto . inet_service", ip+" daddr . meta l4proto . th dport"
	if of == nodePorts {
		kind, key = "inet_proto . inet_service", "meta l4proto . th dport"
	}
	var verdicts []string
	for slot := range maxSlots {
		chain, choice := slotChain(of, slot), choiceChain(of, slot+1)
		tx.Add(&knftables.Map{Name: slotMap(of, slot), Type: kind + " : " + address + " . inet_service"})
		tx.Add(&knftables.Chain{Name: chain})
		rule(tx, chain, fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to %s map @%s", ip, key, slotMap(of, slot)))
		// A packet between a change of the choice and one of the slots must not get a connection
		// without an endpoint: its sender sends it again.
		rule(tx, chain, "drop")
		verdicts = append(verdicts, fmt.Sprintf("%d : goto %s", slot, chain))
		tx.Add(&knftables.Chain{Name: choice})
		if of != clusterIPs {
			rule(tx, choice, "jump "+masqueradeChain)
		}
		rule(tx, choice, fmt.Sprintf("numgen random mod %d vmap { %s }", slot+1, strings.Join(verdicts, " , ")))
	}
}

func (t Table) createMaps(tx *knftables.Transaction) {
	address, port := t.addressType()+" . inet_proto . inet_service : verdict", "inet_proto . inet_service : verdict"
	for _, name := range []string{clusterIPs, externalIPs, closedIPs, closedExternalIPs, guardedIPs} {
		tx.Add(&knftables.Map{Name: name, Type: address})
	}
	for _, name := range []string{nodePorts, closedPorts} {
		tx.Add(&knftables.Map{Name: name, Type: port})
	}
	tx.Add(&knftables.Map{Name: hairpins, Type: t.addressType() + " . " + t.addressType() + " : verdict"})
	tx.Add(&knftables.Set{Name: podRanges, Type: t.addressType(), Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	for _, cidr := range t.PodRanges {
		if strings.Contains(cidr, ":") == (t.Family == corev1.IPv6Protocol) {
			tx.Add(&knftables.Element{Set: podRanges, Key: []string{cidr}})
		}
	}
}

func (t Table) addressType() string {
	if t.Family == corev1.IPv6Protocol {
		return "ipv6_addr"
	}
	return "ipv4_addr"
}

// createHooks adds the chains by which the kernel enters the table.
func (t Table) createHooks(tx *knftables.Transaction) map[string]int {
	count := map[string]int{}
	hook := func(name string, kind knftables.BaseChainType, at knftables.BaseChainHook, priority knftables.BaseChainPriority, rules ...string) {
		tx.Add(&knftables.Chain{Name: name, Type: &kind, Hook: &at, Priority: &priority})
		for _, r := range rules {
			rule(tx, name, r)
		}
		count[name] = len(rules)
	}
	ip := Protocol(t.Family)
	address, port := ip+" daddr . meta l4proto . th dport vmap @", "meta l4proto . th dport vmap @"
	toNode, fromPods := "fib daddr type local ", ""
	if t.Bridge != "" {
		fromPods = fmt.Sprintf("iifname %q ", t.Bridge)
	}
	var guards []string
	for _, server := range t.Servers {
		if t.Bridge != "" && server.Is6() == (t.Family == corev1.IPv6Protocol) {
			guards = append(guards, fmt.Sprintf(`iifname != { "lo", %q } %s daddr %s ct state new drop`, t.Bridge, ip, server))
		}
	}
	notLoopback := ""
	if t.Family == corev1.IPv4Protocol {
		notLoopback = "ip daddr != 127.0.0.0/8 "
		// Loopback addresses are routed, for node ports; only this machine may use them.
		guards = append(guards, `iifname != "lo" ip daddr 127.0.0.0/8 ct state new drop`)
	}
	if len(guards) > 0 {
		hook("loopback", knftables.FilterType, knftables.PreroutingHook, knftables.ManglePriority, guards...)
	}
	hook("firewall", knftables.FilterType, knftables.PreroutingHook, knftables.DNATPriority+"-10", address+guardedIPs)
	hook("firewall-output", knftables.FilterType, knftables.OutputHook, "-110", address+guardedIPs)
	hook("nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority,
		fromPods+address+clusterIPs, address+externalIPs, toNode+notLoopback+port+nodePorts)
	hook("nat-output", knftables.NATType, knftables.OutputHook, "-100",
		address+clusterIPs, address+externalIPs, toNode+port+nodePorts)
	hook("nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority,
		fmt.Sprintf("ct status dnat %s saddr . %s daddr vmap @%s", ip, ip, hairpins),
		fmt.Sprintf("meta mark and %s == %s meta mark set mark xor %s masquerade fully-random", masqueradeMark, masqueradeMark, masqueradeMark))
	closed, closedExternal := "ct state new "+address+closedIPs, "ct state new "+address+closedExternalIPs
	hook("filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority,
		closed, closedExternal, "ct state new "+toNode+port+closedPorts)
	hook("filter-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority, fromPods+closed, closedExternal)
	hook("filter-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority, closed, closedExternal)
	return count
}

func rule(tx *knftables.Transaction, chain, text string) {
	tx.Add(&knftables.Rule{Chain: chain, Rule: text})
}

// Change is the new part of a service in place of the old one. Either may be empty.
type Change struct{ Before, After Part }

// Change adds to a transaction what makes the table have the new parts of services, and
// changes the owners of its keys likewise. It adds to stale the flows that end, and returns
// the keys that services have begun to want beside others. What leads to a key or chain goes before another service gets it, so
// that the changes may come in any order.
func (t Table) Change(tx *knftables.Transaction, owners Owners, stale *Stale, changes ...Change) []Conflict {
	for _, c := range changes {
		t.addObjects(tx, c)
	}
	for _, c := range changes {
		changeRules(tx, c)
	}
	conflicts := changeElements(tx, owners, stale, changes)
	for _, c := range changes {
		for _, name := range added(c.After.Chains, c.Before.Chains) {
			tx.Delete(&knftables.Chain{Name: name})
		}
		for _, name := range added(c.After.Sets, c.Before.Sets) {
			tx.Delete(&knftables.Set{Name: name})
		}
	}
	return conflicts
}

func (t Table) addObjects(tx *knftables.Transaction, c Change) {
	for _, name := range added(c.Before.Sets, c.After.Sets) {
		tx.Add(&knftables.Set{
			Name: name, Type: t.addressType(), Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag},
			Timeout: ptr.To(time.Duration(c.After.Sets[name]) * time.Second),
		})
	}
	for _, name := range added(c.Before.Chains, c.After.Chains) {
		tx.Add(&knftables.Chain{Name: name})
	}
}

// Affinity is the prefix of the names of the sets of clients that stay with an endpoint.
const Affinity = affinity + "-"

const affinity = "affinity"

// Restore adds to a transaction that has created the table the clients that its sets had.
func Restore(tx *knftables.Transaction, clients map[string][]nft.Member, changes ...Change) {
	for _, c := range changes {
		for _, name := range slices.Sorted(maps.Keys(c.After.Sets)) {
			for _, m := range clients[name] {
				if left := int64(m.Expires / time.Second); left > 0 {
					tx.Add(&knftables.Element{Set: name, Key: []string{fmt.Sprintf("%s expires %ds", m.Address, left)}})
				}
			}
		}
	}
}

// changeRules adds the rules when all chains are there: chains go to others.
func changeRules(tx *knftables.Transaction, c Change) {
	for _, name := range slices.Sorted(maps.Keys(c.Before.Chains)) {
		if !slices.Equal(c.Before.Chains[name], c.After.Chains[name]) {
			tx.Flush(&knftables.Chain{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.After.Chains)) {
		if !slices.Equal(c.Before.Chains[name], c.After.Chains[name]) {
			for _, text := range c.After.Chains[name] {
				rule(tx, name, text)
			}
		}
	}
}

// verdict is one of the table, or the endpoint in a slot.
type verdict struct {
	Key
	text string
}

func compare(a, b verdict) int {
	return cmp.Or(cmp.Compare(a.Map, b.Map), cmp.Compare(a.Fields, b.Fields))
}

// verdicts returns those of a key in the maps of the table.
func (e Element) verdicts(k Key) []verdict {
	if e.Verdict == "" {
		return nil
	}
	var all []verdict
	if e.Guard != "" {
		all = append(all, verdict{Key{guardedIPs, k.Fields}, e.Guard})
	}
	for slot, to := range e.Slots {
		all = append(all, verdict{Key{slotMap(k.Map, slot), k.Fields}, to})
	}
	if e.Closed {
		switch k.Map {
		case clusterIPs:
			k.Map = closedIPs
		case externalIPs:
			k.Map = closedExternalIPs
		case nodePorts:
			k.Map = closedPorts
		}
	}
	return append(all, verdict{k, e.Verdict})
}

// changeElements deletes all elements that change before it adds any: the kernel refuses a
// key that has another verdict.
func changeElements(tx *knftables.Transaction, owners Owners, stale *Stale, changes []Change) []Conflict {
	before, conflicts := owners.change(changes)
	var deletes, adds []verdict
	for key, was := range before {
		old, next := was.verdicts(key), owners.owner(key).verdicts(key)
		for _, v := range old {
			if !slices.Contains(next, v) {
				deletes = append(deletes, v)
			}
		}
		for _, v := range next {
			if !slices.Contains(old, v) {
				adds = append(adds, v)
			}
		}
		stale.add(key, was.Datagrams, owners)
	}
	slices.SortFunc(deletes, compare)
	slices.SortFunc(adds, compare)
	for _, v := range deletes {
		tx.Delete(&knftables.Element{Map: v.Map, Key: strings.Split(v.Fields, " . ")})
	}
	for _, v := range adds {
		tx.Add(&knftables.Element{Map: v.Map, Key: strings.Split(v.Fields, " . "), Value: []string{v.text}})
	}
	return conflicts
}

// added returns the sorted names that only the second map has.
func added[V any](before, after map[string]V) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, found := before[name]; !found {
			names = append(names, name)
		}
	}
	return names
}
