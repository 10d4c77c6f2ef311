//go:build linux

package ruleset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// The endpoints of keys are in maps: that of the slot 0 has one of each key, that of the slot 1 a
// second one of each that has two, and so on. The set of a number has the keys with as many endpoints,
// and a rule of all these leads to a chain that chooses one of as many slots. So a change of
// endpoints only changes elements without verdicts. After a new rule or verdict the kernel looks
// for loops in all rules and verdicts of a table, which would take as long as there are services.

const (
	// maxSlots is up to how many endpoints a key has them in maps, and else in a chain of its own.
	maxSlots = 32
	// commonSlots is up to how many endpoints of cluster IPs a table has the sets and rules from the
	// beginning.
	commonSlots = 8
)

// Choices are those that a table has the sets and rules for. They stay when no key has them
// any more: new ones would take longer than new elements.
type Choices map[choice]bool

// choice is one of a number of endpoints, of keys of a set.
type choice struct {
	of        string
	endpoints int
}

// keySets are the sets of keys that have choices, with what the names of their other objects
// contain. A key of one may be one of another, too, with other endpoints.
func keySets() map[string]string {
	return map[string]string{clusterIPs: "", externalIPs: "external-", nodePorts: "node-port-", localExternalIPs: "local-external-", localNodePorts: "local-node-port-"}
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

// chain returns the name of the chain that chooses a slot.
func (c choice) chain() string { return fmt.Sprintf("choose-%sof-%d", keySets()[c.of], c.endpoints) }

// slotMap returns the name of the map of a slot for the keys of a set.
func slotMap(of string, slot int) string { return fmt.Sprintf("%sendpoint-%d", keySets()[of], slot) }

// slotChain returns the name of the chain that leads to the endpoint in a slot.
func slotChain(of string, slot int) string {
	return fmt.Sprintf("to-%sendpoint-%d", keySets()[of], slot)
}

// chainsOf returns the name of the map from keys of a set to the chains of their services.
func chainsOf(of string) string { return "chains-of-" + of }

// commonChoices are those that a new table has.
func commonChoices() Choices {
	c := Choices{}
	for n := range commonSlots {
		c[choice{clusterIPs, n + 1}] = true
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

// with returns those that there are with elements that come.
func (c Choices) with(adds []element) Choices {
	all := maps.Clone(c)
	for _, e := range adds {
		if e.choice != (choice{}) {
			all[e.choice] = true
		}
	}
	return all
}

// objects are what a table has for choices: the rules of chains, and the types of sets and maps, by
// name.
type objects struct {
	chains     map[string][]string
	sets, maps map[string]string
}

// objects returns those for choices.
func (t Table) objects(choices Choices) objects {
	o := objects{map[string][]string{}, map[string]string{}, map[string]string{}}
	for of := range keySets() {
		numbers := choices.numbers(of)
		o.chains[of] = t.lead(of, numbers)
		t.addChoices(o, of, numbers)
	}
	return o
}

// addObjects adds to a transaction the objects for choices that are not those before, and the rules of all.
func (t Table) addObjects(tx *knftables.Transaction, before, after Choices) {
	if len(before) == len(after) {
		return
	}
	var old objects
	if before != nil {
		old = t.objects(before)
	}
	o := t.objects(after)
	for _, name := range added(old.sets, o.sets) {
		tx.Add(&knftables.Set{Name: name, Type: o.sets[name]})
	}
	for _, name := range added(old.maps, o.maps) {
		tx.Add(&knftables.Map{Name: name, Type: o.maps[name]})
	}
	for _, name := range added(old.chains, o.chains) {
		tx.Add(&knftables.Chain{Name: name})
	}
	changeRules(tx, old.chains, o.chains)
}

// lead returns the rules that lead the packets to keys of a set to their choice. A packet between
// the old and the new rules or elements of a service must not get a connection without an endpoint:
// it is dropped, and its sender sends it again.
func (t Table) lead(of string, numbers []int) []string {
	key := t.key(of)
	var rules []string
	switch {
	case isLocal(of):
		// This node's own connections, and those of its pods, go to all endpoints.
		rules = append(rules, "fib saddr type local goto "+masqueradeChain, Protocol(t.Family)+" saddr @"+podRanges+" return")
	case localOf(of) != "":
		rules = append(rules, fmt.Sprintf("%s @%s jump %s", key, localOf(of), localOf(of)))
	}
	for _, n := range numbers {
		c := choice{of, n}
		rules = append(rules, fmt.Sprintf("%s @%s goto %s", key, c.set(), c.chain()))
	}
	if !isLocal(of) {
		rules = append(rules, fmt.Sprintf("%s vmap @%s", key, chainsOf(of)))
	}
	return append(rules, "drop")
}

// addChoices adds the sets of keys with numbers of endpoints, the chains that choose one, and the
// maps and chains of the slots. What comes from outside the cluster gets the node's address, unless the policy is
// Local: see external.
func (t Table) addChoices(o objects, of string, numbers []int) {
	address, key := t.addressType(), t.key(of)
	for slot := range slices.Max(append(numbers, 0)) {
		o.maps[slotMap(of, slot)] = t.keyType(of) + " : " + address + " . inet_service"
		o.chains[slotChain(of, slot)] = []string{
			fmt.Sprintf("meta l4proto { tcp, udp, sctp } dnat %s to %s map @%s", Protocol(t.Family), key, slotMap(of, slot)),
			"drop", // see lead
		}
	}
	for _, n := range numbers {
		c := choice{of, n}
		o.sets[c.set()] = t.keyType(of)
		var rules, verdicts []string
		if local := localOf(of); local != "" {
			rules = append(rules, fmt.Sprintf("%s != @%s jump %s", key, local, masqueradeChain))
		}
		for slot := range n {
			verdicts = append(verdicts, "goto "+slotChain(of, slot))
		}
		o.chains[c.chain()] = append(rules, fmt.Sprintf("numgen random mod %d vmap { %s }", n, numbered(verdicts)))
	}
}

// key returns the expression for the key of a packet, and keyType its type.
func (t Table) key(of string) string {
	const port = "meta l4proto . th dport"
	if of == nodePorts || of == localNodePorts || of == closedPorts {
		return port
	}
	return Protocol(t.Family) + " daddr . " + port
}

func (t Table) keyType(of string) string {
	const port = "inet_proto . inet_service"
	if of == nodePorts || of == localNodePorts || of == closedPorts {
		return port
	}
	return t.addressType() + " . " + port
}

// numbered returns the elements of a map from numbers to values.
func numbered(values []string) string {
	elements := make([]string, len(values))
	for i, value := range values {
		elements[i] = fmt.Sprintf("%d : %s", i, value)
	}
	return strings.Join(elements, " , ")
}
