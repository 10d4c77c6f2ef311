package releases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Changes are what differs between two releases.
type Changes struct {
	From, To Release
	// Added are kinds that To serves and From does not.
	Added []*Kind
	// Deprecated are kinds that both serve and that To warns of, other than From.
	Deprecated []*Kind
	// Removed are kinds that From serves and To does not.
	Removed []*Kind
	// AddedFields and RemovedFields are those of the types that kinds of both releases
	// use, as package.type.field; values of enumerations among them, as
	// package.type=value.
	AddedFields, RemovedFields []string
}

// ParseRange reads two releases, such as 1.24..1.29.
func ParseRange(s string) (from, to Release, err error) {
	first, last, found := strings.Cut(s, "..")
	if !found {
		return 0, 0, fmt.Errorf("invalid range %q: must be two releases, such as 1.24..1.29", s)
	}
	if from, err = ParseRelease(first); err == nil {
		to, err = ParseRelease(last)
	}
	if err == nil && from >= to {
		err = fmt.Errorf("invalid range %q: the second release must be the newer one", s)
	}
	return from, to, err
}

// Served returns the kinds that release r serves, those that are off by default among
// them.
func (t *Table) Served(r Release) []*Kind {
	return t.kinds(func(k *Kind) bool { return k.ServedAt(r) })
}

func (t *Table) kinds(which func(*Kind) bool) []*Kind {
	var kinds []*Kind
	for i := range t.Kinds {
		if which(&t.Kinds[i]) {
			kinds = append(kinds, &t.Kinds[i])
		}
	}
	return kinds
}

// Changes returns what differs between two releases.
func (t *Table) Changes(from, to Release) Changes {
	c := Changes{From: from, To: to}
	c.Added = t.kinds(func(k *Kind) bool { return k.ServedAt(to) && !k.ServedAt(from) })
	c.Removed = t.kinds(func(k *Kind) bool { return k.ServedAt(from) && !k.ServedAt(to) })
	c.Deprecated = t.kinds(func(k *Kind) bool {
		return k.ServedAt(from) && k.ServedAt(to) && k.DeprecatedAt(to) && !k.DeprecatedAt(from)
	})
	used := t.reached(t.kinds(func(k *Kind) bool { return k.ServedAt(from) && k.ServedAt(to) }))
	for _, name := range slices.Sorted(maps.Keys(used)) {
		before, after := used[name].at(from), used[name].at(to)
		separator := "."
		if used[name].Enum {
			separator = "="
		}
		if len(before) == 0 || len(after) == 0 {
			continue // the type itself is new or gone, and the field that it is of is in the list
		}
		for _, field := range slices.Sorted(maps.Keys(after)) {
			if !before[field] {
				c.AddedFields = append(c.AddedFields, name+separator+field)
			}
		}
		for _, field := range slices.Sorted(maps.Keys(before)) {
			if !after[field] {
				c.RemovedFields = append(c.RemovedFields, name+separator+field)
			}
		}
	}
	return c
}

// at returns the names of the fields that release r has.
func (t *Type) at(r Release) map[string]bool {
	names := map[string]bool{}
	for _, f := range t.Fields {
		if f.In.Has(r) {
			names[f.Name] = true
		}
	}
	return names
}

// reached returns the types that kinds use, by package.name.
func (t *Table) reached(kinds []*Kind) map[string]*Type {
	reached := map[string]*Type{}
	var open []*Type
	for _, k := range kinds {
		open = append(open, t.Type(k))
	}
	for len(open) > 0 {
		of := open[0]
		open = open[1:]
		if of == nil || reached[of.Package+"."+of.Name] != nil {
			continue
		}
		reached[of.Package+"."+of.Name] = of
		for i := range of.Fields {
			open = append(open, t.TypeOf(of, &of.Fields[i]))
		}
	}
	return reached
}
