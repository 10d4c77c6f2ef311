package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/knftables"

	"svc.dev/svc/svclet/nft"
)

const (
	forwardChain = "forward"
	// selfSet has each filtered pod's address twice: no policy filters a pod's
	// connections to itself.
	selfSet = "to-itself"
	// nodeSet has the address of each pod of this node.
	nodeSet = "pods-of-node"
)

const tableComment = "Kubernetes network policies, by svclet"

// set is the declaration of a set or, with verdicts, of a map.
type set struct {
	kind, comment string
	verdicts      bool
}

// item is the key of an element: of which set, and its fields, separated by " . ".
type item struct{ set, key string }

// table is the content of the table of a family, and what has changed since it was
// written.
type table struct {
	family family
	sets   journal[string, set]
	// chains have their rules.
	chains journal[string, []string]
	// own are the elements that the pods of this node have in the maps, with their
	// verdicts, and in the other sets, with ""; elements those of groups.
	own, elements journal[item, string]
}

func newTable(f family) *table {
	t := &table{
		family: f,
		sets:   newJournal[string](func(a, b set) bool { return a == b }),
		chains: newJournal[string](slices.Equal[[]string]),
		own:    newJournal[item](func(a, b string) bool { return a == b }), elements: newJournal[item](func(a, b string) bool { return a == b }),
	}
	address := f.addressType()
	t.sets.set(selfSet, set{kind: address + " . " + address})
	t.sets.set(nodeSet, set{kind: address})
	for d := range directions {
		t.sets.set(d.String(), set{kind: address + " : verdict", verdicts: true})
	}
	t.chains.set(forwardChain, t.forward(""))
	return t
}

// forward returns the rules of the hook. With a bridge they let only the addresses of this
// node's pods send, and only these be sent to from one pod to another: others, such as
// link-local ones, those of groups, and those that a pod makes up, are no policy's.
func (t *table) forward(bridge string) []string {
	ip := t.family.ip()
	rules := []string{"ct state established,related accept"}
	if t.family == v6 {
		// Pods of a bridge find each other by these.
		rules = append(rules, "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept")
	}
	if bridge != "" {
		rules = append(rules,
			fmt.Sprintf("iifname %q %s saddr != @%s counter drop", bridge, ip, nodeSet),
			fmt.Sprintf("iifname %q oifname %q %s daddr != @%s counter drop", bridge, bridge, ip, nodeSet))
	}
	rules = append(rules, fmt.Sprintf("%s saddr . %s daddr @%s accept", ip, ip, selfSet))
	for d, field := range [directions]string{egress: "saddr", ingress: "daddr"} {
		rules = append(rules, fmt.Sprintf("%s %s vmap @%s", ip, field, direction(d)))
	}
	return rules
}

// Admit adds to a transaction that pods of this node have these addresses of the family.
func Admit(f knftables.Family, tx *knftables.Transaction, addresses []netip.Addr) {
	for _, address := range addresses {
		if address.Is6() == (f == knftables.IPv6Family) {
			tx.Add(&knftables.Element{Set: nodeSet, Key: []string{address.String()}})
		}
	}
}

// create adds the whole table to a transaction. It replaces what the table had.
func (t *table) create(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{Comment: ptr.To(tableComment)})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: ptr.To(tableComment)})
	t.sets.forget()
	t.chains.forget()
	t.own.forget()
	t.elements.forget()
	t.change(tx)
}

// change adds to a transaction what has changed since the last call.
func (t *table) change(tx *knftables.Transaction) {
	byItem := func(a, b item) int { return cmp.Or(strings.Compare(a.set, b.set), strings.Compare(a.key, b.key)) }
	sets, chains := t.sets.take(strings.Compare), t.chains.take(strings.Compare)
	elements := append(t.elements.take(byItem), t.own.take(byItem)...)
	for _, c := range sets {
		if c.after != nil {
			addSet(tx, c.key, *c.after)
		}
	}
	for _, c := range chains {
		if c.before == nil {
			addChain(tx, c.key)
		} else {
			tx.Flush(&knftables.Chain{Name: c.key})
		}
		if c.after == nil {
			continue
		}
		for _, text := range *c.after {
			tx.Add(&knftables.Rule{Chain: c.key, Rule: text})
		}
	}
	gone := map[string]set{}
	for _, c := range sets {
		if c.after == nil {
			gone[c.key] = *c.before
		}
	}
	for _, c := range elements {
		if _, withSet := gone[c.key.set]; c.before != nil && !withSet {
			tx.Delete(t.element(c.key, nil))
		}
	}
	for _, c := range elements {
		if c.after != nil {
			tx.Add(t.element(c.key, c.after))
		}
	}
	for _, c := range chains {
		if c.after == nil {
			tx.Delete(&knftables.Chain{Name: c.key})
		}
	}
	for _, c := range sets {
		if c.after == nil {
			tx.Delete(&knftables.Set{Name: c.key})
		}
	}
}

// content returns what the table has after its changes.
func (t *table) content() nft.Content {
	c := nft.Content{Rules: map[string]int{}, Elements: map[string]int{}}
	for name, rules := range t.chains.now {
		c.Rules[name] = len(rules)
	}
	for name := range t.sets.now {
		c.Elements[name] = 0
	}
	for _, j := range []journal[item, string]{t.own, t.elements} {
		for i := range j.now {
			c.Elements[i.set]++
		}
	}
	return c
}

func addSet(tx *knftables.Transaction, name string, s set) {
	if s.verdicts {
		tx.Add(&knftables.Map{Name: name, Type: s.kind})
		return
	}
	declared := &knftables.Set{Name: name, Type: s.kind}
	if s.comment != "" {
		declared.Comment = ptr.To(s.comment)
	}
	tx.Add(declared)
}

func addChain(tx *knftables.Transaction, name string) {
	if name != forwardChain {
		tx.Add(&knftables.Chain{Name: name})
		return
	}
	// Addresses of services have been replaced by those of pods before this hook, and
	// those of pods by the node's only after it.
	tx.Add(&knftables.Chain{
		Name: name, Type: ptr.To(knftables.FilterType), Hook: ptr.To(knftables.ForwardHook), Priority: ptr.To(knftables.FilterPriority),
	})
}

// element returns an element of a set or a map; verdict is nil where it does not matter.
func (t *table) element(i item, verdict *string) *knftables.Element {
	fields := strings.Split(i.key, " . ")
	if i.set != egress.String() && i.set != ingress.String() {
		return &knftables.Element{Set: i.set, Key: fields}
	}
	e := &knftables.Element{Map: i.set, Key: fields}
	if verdict != nil {
		e.Value = []string{*verdict}
	}
	return e
}
