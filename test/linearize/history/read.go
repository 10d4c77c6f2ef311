package history

import (
	"cmp"
	"fmt"
	"slices"
)

// List is a list, with the objects of all its pages.
type List struct {
	Name string
	Selector
	Version uint64
	AtLeast uint64 // the lowest version that the request allows
	Exactly uint64 // the only version that it allows, if not 0
	Objects []Object
}

// Get is a get that returned an object.
type Get struct {
	Name string
	Object
	AtLeast uint64 // the lowest version of the collection that the request allows
}

// checkLists checks that each list has the objects of its version.
func (h *history) checkLists(lists []List) (errs []error) {
	lists = slices.Clone(lists)
	slices.SortFunc(lists, func(a, b List) int { return cmp.Compare(a.Version, b.Version) })
	current, applied := state{}, 0
	for _, l := range lists {
		for ; applied < len(h.changes) && h.changes[applied].Version <= l.Version; applied++ {
			current.apply(h.changes[applied])
		}
		var err error
		switch {
		case l.Version < l.AtLeast:
			err = fmt.Errorf("version %d, want at least %d", l.Version, l.AtLeast)
		case l.Exactly != 0 && l.Version != l.Exactly:
			err = fmt.Errorf("version %d, want %d", l.Version, l.Exactly)
		case !current.equal(l.Selector, l.Objects):
			err = fmt.Errorf("version %d has %+v, want %+v", l.Version, l.Objects, current.selected(l.Selector))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", l.Name, err))
		}
	}
	return errs
}

// checkGet checks that a get returned an object that existed at a version that the
// request allows.
func (h *history) checkGet(g Get) error {
	i := after(h.changes, g.Version-1)
	if i == len(h.changes) || h.changes[i].Object != g.Object || h.changes[i].Type == Deleted {
		return fmt.Errorf("the history lacks %+v", g.Object)
	}
	for _, e := range h.changes[i+1:] {
		if e.Version > g.AtLeast {
			break
		}
		if e.Key == g.Key {
			return fmt.Errorf("version %d, but %d is not after %d", g.Version, e.Version, g.AtLeast)
		}
	}
	return nil
}
