//go:build linux

package ruleset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

// The sets and maps of a table, by which a packet's destination finds its service.
const (
	// clusterIPs, externalIPs and nodePorts are those with endpoints.
	clusterIPs  = "cluster-ips"
	externalIPs = "external-ips"
	nodePorts   = "node-ports"
	// localExternalIPs and localNodePorts are those of them whose external traffic policy is
	// Local.
	localExternalIPs = "local-external-ips"
	localNodePorts   = "local-node-ports"
	// closedIPs, closedExternalIPs and closedPorts are those without endpoints.
	closedIPs         = "closed-ips"
	closedExternalIPs = "closed-external-ips"
	closedPorts       = "closed-node-ports"
	// serviceIPs are the addresses of all cluster IPs, whatever the port.
	serviceIPs = "service-ips"
	// droppedIPs are the cluster IPs whose endpoints are on other nodes, while only those of this
	// node are eligible.
	droppedIPs = "dropped-ips"
	// guardedIPs are the keys of load balancers with source ranges.
	guardedIPs = "guarded-ips"
	// hairpins are pairs of the same address: of endpoints that may be on this node, which
	// would answer themselves directly when they reach themselves through a service. They may
	// be addresses of the node itself, whose other connections to itself stay as they are.
	hairpins = "hairpins"
	// podRanges is the set of this node's ranges of pod addresses.
	podRanges = "pod-ranges"
)

const (
	masqueradeChain = "mark-for-masquerade"
	// loopbackChain keeps other machines from loopback addresses and the servers of this one.
	loopbackChain = "loopback"
	// nodeChain is for this node's connections to endpoints elsewhere. Their source was chosen for
	// the cluster IP: on a node with several networks it may not be of the one that leads to the
	// endpoint.
	nodeChain = "from-this-node"
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
// had. It returns the choices that it has, and the number of rules of each chain by which the kernel
// enters the table.
func (t Table) Create(tx *knftables.Transaction) (Choices, map[string]int) {
	tx.Add(&knftables.Table{Comment: ptr.To("Kubernetes services, by svclet")})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: ptr.To("Kubernetes services, by svclet")})
	t.createMaps(tx)
	tx.Add(&knftables.Chain{Name: masqueradeChain})
	rule(tx, masqueradeChain, "meta mark set mark or "+nft.MasqueradeMark)
	tx.Add(&knftables.Chain{Name: nodeChain})
	rule(tx, nodeChain, fmt.Sprintf("ct original %s daddr @%s goto %s", Protocol(t.Family), serviceIPs, masqueradeChain))
	choices := newChoices()
	t.changeChoices(tx, nil, choices)
	return choices, t.createHooks(tx)
}

// plainSets returns the names of the sets of keys.
func plainSets() []string {
	return []string{clusterIPs, externalIPs, nodePorts, localExternalIPs, localNodePorts, closedIPs, closedExternalIPs, closedPorts, droppedIPs, guardedIPs}
}

func (t Table) createMaps(tx *knftables.Transaction) {
	for _, name := range plainSets() {
		tx.Add(&knftables.Set{Name: name, Type: t.keyType(name)})
	}
	t.addEndpointMaps(tx)
	tx.Add(&knftables.Set{Name: serviceIPs, Type: t.addressType()})
	tx.Add(&knftables.Set{Name: hairpins, Type: t.addressType() + " . " + t.addressType()})
	tx.Add(&knftables.Set{Name: podRanges, Type: t.addressType(), Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	for _, cidr := range t.podRanges() {
		tx.Add(&knftables.Element{Set: podRanges, Key: []string{cidr}})
	}
}

// podRanges returns those of the family, without duplicates.
func (t Table) podRanges() []string {
	ranges := slices.DeleteFunc(slices.Sorted(slices.Values(t.PodRanges)), func(cidr string) bool {
		return strings.Contains(cidr, ":") != (t.Family == corev1.IPv6Protocol)
	})
	return slices.Compact(ranges)
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
	// to returns the rule that leads the packets to keys of a set to its chain.
	to := func(of string) string { return fmt.Sprintf("%s @%s goto %s", t.key(of), of, of) }
	// Answers to connections of the node, which may use such a port itself, are not restricted.
	guarded := fmt.Sprintf("ct state new %s @%s goto %s", t.key(guardedIPs), guardedIPs, sourceRanges)
	toNode, fromPods, within := "fib daddr type local ", "", `"lo"`
	if t.Bridge != "" {
		fromPods = fmt.Sprintf("iifname %q ", t.Bridge)
		within += fmt.Sprintf(", %q", t.Bridge)
	}
	// Node ports are at 127.0.0.1 for this machine only, and at ::1 not at all: the kernel routes
	// no packet from there to an endpoint.
	notLoopback, notOwnLoopback := "ip daddr != 127.0.0.0/8 ", ""
	if t.Family == corev1.IPv6Protocol {
		notLoopback, notOwnLoopback = "ip6 daddr != ::1 ", "ip6 daddr != ::1 "
	}
	if guards := t.guards(); len(guards) > 0 {
		hook(loopbackChain, knftables.FilterType, knftables.PreroutingHook, knftables.ManglePriority, guards...)
	}
	hook("firewall", knftables.FilterType, knftables.PreroutingHook, knftables.DNATPriority+"-10", guarded)
	hook("firewall-output", knftables.FilterType, knftables.OutputHook, "-110", guarded)
	hook("nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority,
		fromPods+to(clusterIPs), to(externalIPs), toNode+notLoopback+to(nodePorts))
	hook("nat-output", knftables.NATType, knftables.OutputHook, "-100",
		to(clusterIPs), to(externalIPs), toNode+notOwnLoopback+to(nodePorts))
	hook("nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority,
		fmt.Sprintf("ct status dnat %s saddr . %s daddr @%s jump %s", ip, ip, hairpins, masqueradeChain),
		fmt.Sprintf("ct status dnat oifname != { %s } fib saddr type local jump %s", within, nodeChain),
		fmt.Sprintf("meta mark and %s == %s meta mark set mark xor %s masquerade fully-random", nft.MasqueradeMark, nft.MasqueradeMark, nft.MasqueradeMark))
	end := func(of, how string) string { return fmt.Sprintf("ct state new %s @%s %s", t.key(of), of, how) }
	closed, dropped, closedExternal := end(closedIPs, "reject"), end(droppedIPs, "drop"), end(closedExternalIPs, "reject")
	// No endpoint has replaced the address: the service does not have the port.
	noPort := fmt.Sprintf("ct state new %s daddr @%s reject", ip, serviceIPs)
	hook("filter-input", knftables.FilterType, knftables.InputHook, knftables.FilterPriority,
		closed, dropped, closedExternal, "ct state new "+toNode+notOwnLoopback+fmt.Sprintf("%s @%s reject", t.key(closedPorts), closedPorts))
	hook("filter-forward", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority, slices.Concat(t.dropInvalid(),
		[]string{fromPods + closed, fromPods + dropped, closedExternal, fromPods + noPort})...)
	hook("filter-output", knftables.FilterType, knftables.OutputHook, knftables.FilterPriority, closed, dropped, closedExternal, noPort)
	return count
}

// guards returns the rules that keep other machines from the servers of this one.
func (t Table) guards() []string {
	var guards []string
	for _, server := range t.Servers {
		if t.Bridge != "" && server.Is6() == (t.Family == corev1.IPv6Protocol) {
			guards = append(guards, fmt.Sprintf(`iifname != { "lo", %q } %s daddr %s ct state new drop`, t.Bridge, Protocol(t.Family), server))
		}
	}
	if t.Family == corev1.IPv4Protocol {
		// Loopback addresses are routed, for node ports; only this machine may use them.
		guards = append(guards, `iifname != "lo" ip daddr 127.0.0.0/8 ct state new drop`)
	}
	return guards
}

// ChangeServers adds to a transaction what makes the table have its servers in place of others. It
// changes the number of rules of their chain, by which the kernel enters the table.
func (t Table) ChangeServers(tx *knftables.Transaction, before []netip.Addr, hooks map[string]int) {
	old, guards := t, t.guards()
	old.Servers = before
	if slices.Equal(old.guards(), guards) {
		return
	}
	tx.Add(&knftables.Chain{Name: loopbackChain, Type: ptr.To(knftables.FilterType), Hook: ptr.To(knftables.PreroutingHook), Priority: ptr.To(knftables.ManglePriority)})
	tx.Flush(&knftables.Chain{Name: loopbackChain})
	for _, guard := range guards {
		rule(tx, loopbackChain, guard)
	}
	hooks[loopbackChain] = len(guards)
}

// dropInvalid returns the rules that drop what pods of the bridge send or get and connection
// tracking calls invalid, such as a TCP segment outside of the window. Its addresses are not
// translated: a pod that gets the answer of an endpoint in place of that of the service
// resets the connection (kubernetes/kubernetes#74839).
func (t Table) dropInvalid() []string {
	if t.Bridge == "" {
		return nil
	}
	return []string{fmt.Sprintf("iifname %q ct state invalid drop", t.Bridge), fmt.Sprintf("oifname %q ct state invalid drop", t.Bridge)}
}

func rule(tx *knftables.Transaction, chain, text string) {
	tx.Add(&knftables.Rule{Chain: chain, Rule: text})
}

// Change is the new part of a service in place of the old one. Either may be empty.
type Change struct{ Before, After Part }

// Change adds to a transaction what makes the table have the new parts of services, and
// changes the owners of its keys and its choices likewise. It adds to stale the flows that end, and
// returns the keys that services have begun to want beside others. What leads to a key goes
// before another service gets it, so that the changes may come in any order.
func (t Table) Change(tx *knftables.Transaction, owners Owners, choices Choices, stale *Stale, changes ...Change) []Conflict {
	deletes, adds, conflicts := changeElements(owners, stale, changes)
	before := maps.Clone(choices)
	remove := func() {}
	if choices.change(deletes, adds) {
		remove = t.changeChoices(tx, before, choices)
	}
	for _, e := range deletes {
		e.delete(tx)
	}
	for _, e := range adds {
		e.add(tx)
	}
	remove()
	return conflicts
}

// Content returns what the table has with the rules of its hooks, and the choices and owners that
// [Table.Change] has made of the parts of services. Clients that stay with an endpoint do not count.
func (t Table) Content(hooks map[string]int, choices Choices, owners Owners) nft.Content {
	c := nft.Content{Rules: maps.Clone(hooks), Elements: map[string]int{podRanges: len(t.podRanges()), serviceIPs: 0, hairpins: 0}}
	c.Rules[masqueradeChain], c.Rules[nodeChain] = 1, 1
	for name, rules := range t.leads(choices) {
		c.Rules[name] = len(rules)
	}
	for _, name := range slices.Concat(plainSets(), endpointMaps()) {
		c.Elements[name] = 0
	}
	for choice := range choices {
		c.Elements[choice.set()] = 0
	}
	for key := range owners {
		for _, e := range owners.owner(key).elements(key) {
			c.Elements[e.Map]++
		}
	}
	return c
}

// changeRules changes the rules of chains when all chains are there: chains go to others.
func changeRules(tx *knftables.Transaction, before, after map[string][]string) {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !slices.Equal(before[name], after[name]) {
			tx.Flush(&knftables.Chain{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !slices.Equal(before[name], after[name]) {
			for _, text := range after[name] {
				rule(tx, name, text)
			}
		}
	}
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
