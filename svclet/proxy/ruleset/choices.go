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
// of the numbers. With session affinity, the set of the numbers that have an endpoint, and of the
// timeout, has the keys: see affinity.go. The source ranges of keys are in sets, too, one for each
// length of a prefix: see sources.go. So a change of a service only changes elements without
// verdicts. After a new rule or verdict the kernel looks for loops in all rules and verdicts of a
// table, which would take as long as there are services.

const (
	// commonChoices is up to how many endpoints of cluster IPs a table has the sets and rules from
	// the beginning.
	commonChoices = 8
	// maxUnused is how many other choices that no key has may stay.
	maxUnused = 32
)

// Choices are those that a table has the sets and rules for, with the number of elements that
// have each. Those that no key has any more stay until there are many of them: new ones take longer
// than new elements, and the number of endpoints of a service goes up and down in a rolling update.
type Choices map[choice]int

// choice is what a rule of several keys does: it looks up one of their endpoints, or compares
// their sources.
type choice struct {
	// of is the set of the keys.
	of string
	// size is the number of endpoints, or the length of the prefix of sources.
	size int
	// numbers are of endpoints that clients stay with for timeout, in seconds: the digit at an index
	// is 1 if the number has an endpoint. It is empty without session affinity.
	numbers string
	timeout int32
}

// choiceOf returns that of endpoints of a key of a set, with a timeout of session affinity or 0.
func choiceOf(of string, endpoints []string, timeout int32) choice {
	if timeout == 0 {
		return choice{of: of, size: len(endpoints)}
	}
	c := choice{of: of, timeout: timeout}
	for _, e := range endpoints {
		if e == "" {
			c.numbers += "0"
		} else {
			c.numbers += "1"
			c.size++
		}
	}
	return c
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
func (c choice) set() string {
	if c.timeout > 0 {
		return cut(fmt.Sprintf("%s-of-numbers-%s-for-%ds", c.of, c.numbers, c.timeout))
	}
	return fmt.Sprintf("%s-of-%d", c.of, c.size)
}

// common reports whether each table has the choice.
func (c choice) common() bool {
	return c.of == clusterIPs && c.timeout == 0 && c.size <= commonChoices
}

// newChoices returns those that a new table has.
func newChoices() Choices {
	c := Choices{}
	for n := range commonChoices {
		c[choice{of: clusterIPs, size: n + 1}] = 0
	}
	return c
}

// ofSet returns the choices of keys of a set, sorted.
func (c Choices) ofSet(of string) []choice {
	var all []choice
	for choice := range c {
		if choice.of == of {
			all = append(all, choice)
		}
	}
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.timeout, b.timeout), cmp.Compare(a.size, b.size), cmp.Compare(a.numbers, b.numbers))
	})
	return all
}

// change counts the elements that go and come. It reports whether choices have come; then those
// that too many have no keys of have gone.
func (c Choices) change(deletes, adds []element) (come bool) {
	for _, e := range adds {
		if e.choice == (choice{}) {
			continue
		}
		if _, found := c[e.choice]; !found {
			come = true
		}
		c[e.choice]++
	}
	var unused []choice
	for _, e := range deletes {
		if e.choice != (choice{}) {
			c[e.choice]--
		}
	}
	for choice, keys := range c {
		if keys == 0 && !choice.common() {
			unused = append(unused, choice)
		}
	}
	if come && len(unused) > maxUnused {
		for _, choice := range unused {
			delete(c, choice)
		}
	}
	return come
}

// leads returns the rules of the chains that lead the packets to keys to their endpoints, and those
// of source ranges.
func (t Table) leads(choices Choices) map[string][]string {
	chains := map[string][]string{sourceRanges: t.allowSources(choices.ofSet(sourceRanges))}
	for of := range keySets() {
		chains[of] = t.lead(of, choices.ofSet(of))
	}
	for c := range choices {
		if c.timeout > 0 {
			t.addAffinity(chains, c)
		}
	}
	return chains
}

// sets returns the sets of the choices, by their names.
func (t Table) sets(choices Choices) map[string]*knftables.Set {
	sets := map[string]*knftables.Set{}
	for c := range choices {
		sets[c.set()] = &knftables.Set{Name: c.set(), Type: t.keyType(c.of)}
		if c.timeout > 0 {
			t.addClientSets(sets, c)
		}
	}
	return sets
}

// changeChoices adds to a transaction the chains, sets and rules of choices in place of those
// before. It returns what deletes those that are gone, when no element leads to them.
func (t Table) changeChoices(tx *knftables.Transaction, before, after Choices) (remove func()) {
	oldSets, sets := t.sets(before), t.sets(after)
	oldChains, chains := t.leads(before), t.leads(after)
	if before == nil {
		oldChains = nil
	}
	for _, name := range added(oldSets, sets) {
		tx.Add(sets[name])
	}
	for _, name := range added(oldChains, chains) {
		tx.Add(&knftables.Chain{Name: name})
	}
	changeRules(tx, oldChains, chains)
	return func() {
		for _, name := range added(chains, oldChains) {
			tx.Delete(&knftables.Chain{Name: name})
		}
		for _, name := range added(sets, oldSets) {
			tx.Delete(&knftables.Set{Name: name})
		}
	}
}

// lead returns the rules that lead the packets to keys of a set to their choice. What comes
// from outside the cluster gets the node's address, unless the policy is Local. A packet between
// the old and the new rules or elements of a service must not get a connection without an endpoint:
// it is dropped, and its sender sends it again.
func (t Table) lead(of string, choices []choice) []string {
	key, local := t.key(of), localOf(of)
	var rules []string
	switch {
	case isLocal(of):
		// This node's own connections, and those of its pods, go to all endpoints.
		rules = append(rules, "fib saddr type local goto "+masqueradeChain, Protocol(t.Family)+" saddr @"+podRanges+" return")
	case local != "":
		rules = append(rules, fmt.Sprintf("%s @%s jump %s", key, local, local), fmt.Sprintf("%s != @%s jump %s", key, local, masqueradeChain))
	}
	for _, c := range choices {
		if c.timeout > 0 {
			rules = append(rules, fmt.Sprintf("%s @%s goto %s", key, c.set(), c.set()))
		} else {
			rules = append(rules, t.translate(of, c.set(), fmt.Sprintf("numgen random mod %d", c.size))...)
		}
	}
	return append(rules, "drop")
}

// translate returns the rules that send the packets to keys of a set to the endpoint of a number;
// those to keys that are in another set, too, if its name is not empty.
func (t Table) translate(of, in, number string) []string {
	var rules []string
	key := t.key(of)
	if in != "" {
		in = fmt.Sprintf("%s @%s ", key, in)
	}
	for _, protocol := range protocols() {
		rules = append(rules, fmt.Sprintf("meta l4proto %s %sdnat %s to %s . %s map @%s", protocol, in, Protocol(t.Family), key, number, endpointMap(of, protocol)))
	}
	return rules
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
	switch of {
	case nodePorts, localNodePorts, closedPorts:
		return port
	case sourceRanges:
		return t.withSource(guardedIPs)
	}
	return t.addressType() + " . " + port
}

// withSource is the type of keys of a set after the address of a packet's source.
func (t Table) withSource(of string) string { return t.addressType() + " . " + t.keyType(of) }

// addEndpointMaps adds to a transaction the maps of the endpoints of keys. The type of a
// number has no name. The port of an endpoint is one of the map's protocol: with the port of any, "th
// dport", nft 1.0.6 refuses rules with a map of an earlier transaction ("conflicting protocols specified").
func (t Table) addEndpointMaps(tx *knftables.Transaction) {
	for _, of := range slices.Sorted(maps.Keys(keySets())) {
		for _, protocol := range protocols() {
			tx.Add(&knftables.Map{Name: endpointMap(of, protocol), TypeOf: fmt.Sprintf("%s . numgen random mod 1 : %s daddr . %s dport", t.key(of), Protocol(t.Family), protocol)})
		}
	}
}
