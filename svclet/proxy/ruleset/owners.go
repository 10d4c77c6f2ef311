//go:build linux

package ruleset

import (
	"cmp"
	"slices"

	"svc.dev/svc/svclet/services"
)

// Owners are, for each key of a table's maps, the services that want it, the oldest first.
// This one owns the key: another service cannot take an address away from it by naming the
// same. When it goes, the next one owns the key.
type Owners map[Key][]owner

type owner struct {
	service services.Key
	created int64 // in seconds
	Element
}

// Conflict is a key that several services want, of which the first one owns it.
type Conflict struct {
	Key      Key
	Services []services.Key
}

// owner returns that of a key; empty if it has none.
func (o Owners) owner(k Key) owner {
	if of := o[k]; len(of) > 0 {
		return of[0]
	}
	return owner{}
}

func (o Owners) datagrams(k Key) *Datagrams { return o.owner(k).Datagrams }

// change replaces parts by others. It returns the owner before of each key that they
// have, and the conflicts in which a service has a key that it did not have.
func (o Owners) change(changes []Change) (before map[Key]owner, conflicts []Conflict) {
	before = map[Key]owner{}
	for _, c := range changes {
		for _, elements := range []map[Key]Element{c.Before.Elements, c.After.Elements} {
			for key := range elements {
				before[key] = o.owner(key)
			}
		}
	}
	for _, c := range changes {
		for key := range c.Before.Elements {
			o.remove(key, c.Before.Service)
		}
	}
	contested := map[Key]bool{}
	for _, c := range changes {
		for key, element := range c.After.Elements {
			o.add(key, owner{c.After.Service, c.After.Created, element})
			// What all do with hairpins is the same, and with the addresses of cluster IPs.
			if _, had := c.Before.Elements[key]; !had && len(o[key]) > 1 && key.Map != hairpins && key.Map != serviceIPs {
				contested[key] = true
			}
		}
	}
	for key, was := range before {
		if of := o[key]; len(of) > 0 {
			arranged := arrange
			if of[0].Timeout > 0 {
				arranged = keepNumbers
			}
			of[0].Endpoints = arranged(was.Endpoints, of[0].Endpoints)
			of[0].LocalEndpoints = arranged(was.LocalEndpoints, of[0].LocalEndpoints)
		}
	}
	for key := range contested {
		conflict := Conflict{Key: key}
		for _, of := range o[key] {
			conflict.Services = append(conflict.Services, of.service)
		}
		conflicts = append(conflicts, conflict)
	}
	return before, conflicts
}

func (o Owners) add(k Key, added owner) {
	of := o[k]
	at, _ := slices.BinarySearchFunc(of, added, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.service.Namespace, b.service.Namespace), cmp.Compare(a.service.Name, b.service.Name))
	})
	o[k] = slices.Insert(of, at, added)
}

func (o Owners) remove(k Key, service services.Key) {
	o[k] = slices.DeleteFunc(o[k], func(of owner) bool { return of.service == service })
	if len(o[k]) == 0 {
		delete(o, k)
	}
}

// arrange returns the endpoints after a change in an order in which as many as possible have the
// same numbers as before: only the others change elements.
func arrange(before, after []string) []string {
	if len(before) == 0 {
		return after
	}
	numbers := make(map[string]int, len(before))
	for n, e := range before[:min(len(before), len(after))] {
		numbers[e] = n
	}
	arranged := make([]string, len(after))
	var others []string
	for _, e := range after {
		if n, found := numbers[e]; found {
			arranged[n] = e
		} else {
			others = append(others, e)
		}
	}
	for n := range arranged {
		if arranged[n] == "" {
			arranged[n], others = others[0], others[1:]
		}
	}
	return arranged
}

// keepNumbers returns the endpoints after a change in an order in which each that was there before
// keeps its number: clients stay with it. Other endpoints get the lowest numbers that are left. Those
// without an endpoint have an empty string.
func keepNumbers(before, after []string) []string {
	if len(before) == 0 {
		return after
	}
	come := make(map[string]bool, len(after))
	for _, e := range after {
		come[e] = e != ""
	}
	arranged := slices.Clone(before)
	for n, e := range arranged {
		if !come[e] {
			arranged[n] = ""
		}
		delete(come, e)
	}
	for _, e := range after {
		if !come[e] {
			continue
		}
		if n := slices.Index(arranged, ""); n >= 0 {
			arranged[n] = e
		} else {
			arranged = append(arranged, e)
		}
	}
	for len(arranged) > 0 && arranged[len(arranged)-1] == "" {
		arranged = arranged[:len(arranged)-1]
	}
	return arranged
}
