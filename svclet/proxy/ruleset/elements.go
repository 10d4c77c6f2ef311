//go:build linux

package ruleset

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// Key is the key of an element of a set: fields are separated by " . ".
type Key struct{ Map, Fields string }

// Element is what happens to the packets to a key of a service.
type Element struct {
	// Closed is the set of the key without endpoints; empty with some.
	Closed string
	// Endpoints have their numbers in the table as indexes. With LocalOnly, they are those for
	// connections of this node and of its pods, and others reach LocalEndpoints only.
	Endpoints, LocalEndpoints []string
	LocalOnly                 bool
	// Timeout is for how many seconds without a connection clients stay with their endpoint; 0
	// without session affinity. With it an endpoint keeps its number, and numbers without an
	// endpoint have an empty string.
	Timeout int32
	// Sources are the only ones of connections; nil means all.
	Sources []netip.Prefix
	// Datagrams are nil for other protocols than UDP, and without endpoints.
	Datagrams *Datagrams
}

// element is one of a set or map of the table: value is empty in a set. choice is that
// which a key of a set of keys has.
type element struct {
	Key
	value string
	choice
}

func compare(a, b element) int {
	return cmp.Or(cmp.Compare(a.Map, b.Map), cmp.Compare(a.Fields, b.Fields))
}

func (e element) add(tx *knftables.Transaction) {
	added := &knftables.Element{Set: e.Map, Key: strings.Split(e.Fields, " . ")}
	if e.value != "" {
		added.Set, added.Map, added.Value = "", e.Map, []string{e.value}
	}
	tx.Add(added)
}

func (e element) delete(tx *knftables.Transaction) {
	deleted := &knftables.Element{Set: e.Map, Key: strings.Split(e.Fields, " . ")}
	if e.value != "" {
		deleted.Set, deleted.Map = "", e.Map
	}
	tx.Delete(deleted)
}

// elements returns those that the owner of a key has in the table; none if it has no owner.
func (o owner) elements(k Key) []element {
	if o.service.Name == "" {
		return nil
	}
	in := func(name, value string) element { return element{Key: Key{name, k.Fields}, value: value} }
	var all []element
	if len(o.Sources) > 0 {
		all = append(all, in(guardedIPs, ""))
	}
	for _, source := range o.Sources {
		c := choice{of: sourceRanges, size: source.Bits()}
		all = append(all, element{Key{c.set(), fmt.Sprintf("%s . %s", source.Masked().Addr(), k.Fields)}, "", c})
	}
	if o.Closed != "" {
		return append(all, in(o.Closed, ""))
	}
	all = append(all, in(k.Map, ""))
	choose := func(of string, endpoints []string) {
		if len(endpoints) == 0 {
			return
		}
		fields := strings.Split(k.Fields, " . ")
		name := endpointMap(of, fields[len(fields)-2]) // the protocol is before the port
		for n, to := range endpoints {
			if to != "" {
				all = append(all, element{Key: Key{name, fmt.Sprintf("%s . %#x", k.Fields, n)}, value: to})
			}
		}
		c := choiceOf(of, endpoints, o.Timeout)
		all = append(all, element{Key{c.set(), k.Fields}, "", c})
	}
	choose(k.Map, o.Endpoints)
	if o.LocalOnly {
		all = append(all, in(localOf(k.Map), ""))
		choose(localOf(k.Map), o.LocalEndpoints)
	}
	return all
}

// changeElements returns the elements that go and come. All that change are deleted before any is
// added: the kernel refuses a key that has another value.
func changeElements(owners Owners, stale *Stale, changes []Change) (deletes, adds []element, conflicts []Conflict) {
	before, conflicts := owners.change(changes)
	for key, was := range before {
		old, next := was.elements(key), owners.owner(key).elements(key)
		for _, e := range old {
			if !slices.Contains(next, e) {
				deletes = append(deletes, e)
			}
		}
		for _, e := range next {
			if !slices.Contains(old, e) {
				adds = append(adds, e)
			}
		}
		stale.add(key, was.Datagrams, owners)
	}
	slices.SortFunc(deletes, compare)
	slices.SortFunc(adds, compare)
	return deletes, adds, conflicts
}
