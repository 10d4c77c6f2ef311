//go:build linux

package ruleset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/knftables"
)

// The endpoints of keys are in maps: of a key with N endpoints, a map has the key with each number
// below N. The set of N has the keys with as many endpoints, and a rule of all these looks up one
// of the numbers. So a change of endpoints only changes elements without verdicts. After a new rule
// or verdict the kernel looks for loops in all rules and verdicts of a table, which would take as
// long as there are services.

const (
	// commonChoices is up to how many endpoints of cluster IPs a table has the sets and rules from
	// the beginning.
	commonChoices = 8
	// maxUnused is how many other choices that no key has may stay.
	maxUnused = 32
)

// Choices are those that a table has the sets and rules for, with the number of keys that
// have each. Those that no key has any more stay until there are many of them: new ones take longer
// than new elements, and the number of endpoints of a service goes up and down in a rolling update.
type Choices map[choice]int

// choice is one of a number of endpoints, of keys of a set.
type choice struct {
	of        string
	endpoints int
}

// keySets are the sets of keys that have choices, with the names of the maps of their endpoints
// after the protocol. A key of one may be one of another, too, with other endpoints.
func keySets() map[string]string {
	return map[string]string{
		clusterIPs: "endpoints", externalIPs: "external-endpoints", nodePorts: "node-port-endpoints",
		localExternalIPs: "local-external-endpoints", localNodePorts: "local-node-port-endpoints",
	}
}

// protocols are those of services, as nft names them.
func protocols() []string { return []string{"tcp", "udp", "sctp"} }

// endpointMap returns the name of the map of the endpoints of keys of a set with a protocol.
func endpointMap(of, protocol string) string { return protocol + "-" + keySets()[of] }

// endpointMaps returns the names of all maps of endpoints.
func endpointMaps() []string {
	var all []string
	for of := range keySets() {
		for _, protocol := range protocols() {
			all = append(all, endpointMap(of, protocol))
		}
	}
	return all
}

// localOf returns the set of those keys of a set that have the external traffic policy Local;
// empty for cluster IPs.
func localOf(of string) string {
	switch of {
	case externalIPs:
		return localExternalIPs
	case nodePorts:
		return localNodePorts
	}
	return ""
}

// isLocal reports whether a set is one of the external traffic policy Local.
func isLocal(of string) bool { return of == localExternalIPs || of == localNodePorts }

// set returns the name of the set of keys with the choice.
func (c choice) set() string { return fmt.Sprintf("%s-of-%d", c.of, c.endpoints) }

// common reports whether each table has the choice.
func (c choice) common() bool { return c.of == clusterIPs && c.endpoints <= commonChoices }

// chainsOf returns the name of the map from keys of a set to the chains of their services.
func chainsOf(of string) string { return "chains-of-" + of }

// newChoices returns those that a new table has.
func newChoices() Choices {
	c := Choices{}
	for n := range commonChoices {
		c[choice{clusterIPs, n + 1}] = 0
	}
	return c
}

// numbers returns the numbers of endpoints of keys of a set, sorted.
func (c Choices) numbers(of string) []int {
	var numbers []int
	for choice := range c {
		if choice.of == of {
			numbers = append(numbers, choice.endpoints)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// change counts the elements that go and come. It returns the choices that come and, if there
// are any, those that go, because too many have no keys.
func (c Choices) change(deletes, adds []element) (gone, come []choice) {
	for _, e := range adds {
		if e.choice == (choice{}) {
			continue
		}
		if _, found := c[e.choice]; !found {
			come = append(come, e.choice)
		}
		c[e.choice]++
	}
	for _, e := range deletes {
		if e.choice != (choice{}) {
			c[e.choice]--
		}
	}
	for choice, keys := range c {
		if keys == 0 && !choice.common() {
			gone = append(gone, choice)
		}
	}
	if len(come) == 0 || len(gone) <= maxUnused {
		return nil, come
	}
	for _, choice := range gone {
		delete(c, choice)
	}
	return gone, come
}

// sorted returns choices sorted by the names of their sets.
func sorted(all []choice) []choice {
	slices.SortFunc(all, func(a, b choice) int { return cmp.Compare(a.set(), b.set()) })
	return all
}

// leads returns the rules of the chains that lead the packets to keys to their choices.
func (t Table) leads(choices Choices) map[string][]string {
	chains := map[string][]string{}
	for of := range keySets() {
		chains[of] = t.lead(of, choices.numbers(of))
	}
	return chains
}

// addChoices adds to a transaction the sets of the choices that come, and the rules of all in
// place of those before.
func (t Table) addChoices(tx *knftables.Transaction, before map[string][]string, come []choice, all Choices) {
	for _, c := range sorted(come) {
		tx.Add(&knftables.Set{Name: c.set(), Type: t.keyType(c.of)})
	}
	changeRules(tx, before, t.leads(all))
}

// lead returns the rules that lead the packets to keys of a set to their choice. What comes
// from outside the cluster gets the node's address, unless the policy is Local. A packet between
// the old and the new rules or elements of a service must not get a connection without an endpoint:
// it is dropped, and its sender sends it again.
func (t Table) lead(of string, numbers []int) []string {
	key, local := t.key(of), localOf(of)
	var rules []string
	switch {
	case isLocal(of):
		// This node's own connections, and those of its pods, go to all endpoints.
		rules = append(rules, "fib saddr type local goto "+masqueradeChain, Protocol(t.Family)+" saddr @"+podRanges+" return")
	case local != "":
		rules = append(rules, fmt.Sprintf("%s @%s jump %s", key, local, local))
	}
	if !isLocal(of) {
		rules = append(rules, fmt.Sprintf("%s vmap @%s", key, chainsOf(of)))
	}
	if local != "" {
		rules = append(rules, fmt.Sprintf("%s != @%s jump %s", key, local, masqueradeChain))
	}
	for _, n := range numbers {
		for _, protocol := range protocols() {
			rules = append(rules, fmt.Sprintf("meta l4proto %s %s @%s dnat %s to %s map @%s",
				protocol, key, choice{of, n}.set(), Protocol(t.Family), t.numbered(of, n), endpointMap(of, protocol)))
		}
	}
	return append(rules, "drop")
}

// portKey is the expression for the protocol and the port of a packet.
const portKey = "meta l4proto . th dport"

// key returns the expression for the key of a packet, and keyType its type.
func (t Table) key(of string) string {
	if of == nodePorts || of == localNodePorts || of == closedPorts {
		return portKey
	}
	return Protocol(t.Family) + " daddr . " + portKey
}

func (t Table) keyType(of string) string {
	const port = "inet_proto . inet_service"
	if of == nodePorts || of == localNodePorts || of == closedPorts {
		return port
	}
	return t.addressType() + " . " + port
}

// numbered returns the expression for the key of a packet with a random number below n.
func (t Table) numbered(of string, n int) string {
	return fmt.Sprintf("%s . numgen random mod %d", t.key(of), n)
}

// addEndpointMaps adds to a transaction the maps of the endpoints of keys. The type of a
// number has no name. The port of an endpoint is one of the map's protocol: with the port of any, "th
// dport", nft 1.0.6 refuses rules with a map of an earlier transaction ("conflicting protocols specified").
func (t Table) addEndpointMaps(tx *knftables.Transaction) {
	for _, of := range slices.Sorted(maps.Keys(keySets())) {
		for _, protocol := range protocols() {
			tx.Add(&knftables.Map{Name: endpointMap(of, protocol), TypeOf: fmt.Sprintf("%s : %s daddr . %s dport", t.numbered(of, 1), Protocol(t.Family), protocol)})
		}
	}
}
