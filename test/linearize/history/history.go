// Package history owns the sequence of all changes of a collection of objects, as etcd
// has it, and checks what watches, reads and writes returned against it.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Object is what is compared of an object.
type Object struct {
	Key, UID, Value, Label string
	Version                uint64
}

// The types of events, as a watch sends them.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK" // its object has the version only
)

// Event is an event of a watch. The version of its object is that of the change, also of
// a delete.
type Event struct {
	Type string
	Object
	InitialEnd bool // a bookmark that ends the initial events
}

// Selector selects objects by label and by key. Its zero value selects all.
type Selector struct{ Label, Key string }

func (s Selector) matches(o Object) bool {
	return (s.Label == "" || s.Label == o.Label) && (s.Key == "" || s.Key == o.Key)
}

// Run is everything that clients received while the collection, which was empty
// before, changed.
type Run struct {
	// Changes are all changes, in the order of their versions.
	Changes []Event
	Watches []Watch
	Lists   []List
	Gets    []Get
	Writes  []Write
	Deletes []Delete
}

// Write is a write with a response that reports success.
type Write struct {
	Object
	After uint64 // a version that a client had received before the call
}

// Delete is a delete with a response that reports success.
type Delete struct{ Key, UID string }

// Check returns an error for everything in the run that breaks a rule.
func Check(run Run) error {
	h := &history{changes: run.Changes, selected: map[Selector][]Event{}}
	if err := h.checkChanges(); err != nil {
		return err
	}
	var errs []error
	for _, w := range run.Watches {
		if err := h.checkWatch(w); err != nil {
			errs = append(errs, fmt.Errorf("watch %s: %w", w.Name, err))
		}
	}
	errs = append(errs, h.checkLists(run.Lists)...)
	for _, g := range run.Gets {
		if err := h.checkGet(g); err != nil {
			errs = append(errs, fmt.Errorf("get %s of %s: %w", g.Name, g.Key, err))
		}
	}
	return errors.Join(append(errs, h.checkWrites(run.Writes, run.Deletes)...)...)
}

type history struct {
	changes []Event
	// selected are the events that a watch with a selector sends for the changes.
	selected map[Selector][]Event
}

// checkChanges checks that each change is possible in the state before it.
func (h *history) checkChanges() error {
	current := state{}
	for _, e := range h.changes {
		before, exists := current[e.Key]
		switch {
		case e.Type == Added && exists:
			return fmt.Errorf("version %d adds an object that exists: %+v", e.Version, before)
		case e.Type != Added && (!exists || before.UID != e.UID):
			return fmt.Errorf("version %d: %s of an object that does not exist: %+v", e.Version, e.Type, e.Object)
		}
		if before.Version = e.Version; e.Type == Deleted && before != e.Object {
			return fmt.Errorf("version %d deletes %+v, which was %+v", e.Version, e.Object, before)
		}
		current.apply(e)
	}
	return nil
}

// state has the objects that exist, by key.
type state map[string]Object

func (s state) apply(e Event) {
	if e.Type == Deleted {
		delete(s, e.Key)
	} else {
		s[e.Key] = e.Object
	}
}

// equal reports whether objects are those of the state that a selector selects.
func (s state) equal(selector Selector, objects []Object) bool {
	seen := map[string]bool{}
	for _, o := range objects {
		if s[o.Key] != o || !selector.matches(o) || seen[o.Key] {
			return false
		}
		seen[o.Key] = true
	}
	return len(s.selected(selector)) == len(objects)
}

func (s state) selected(selector Selector) []Object {
	var selected []Object
	for _, o := range s {
		if selector.matches(o) {
			selected = append(selected, o)
		}
	}
	slices.SortFunc(selected, func(a, b Object) int { return cmp.Compare(a.Key, b.Key) })
	return selected
}

// checkWrites checks that each successful write is in the history, after everything
// that had a response before its call.
func (h *history) checkWrites(writes []Write, deletes []Delete) (errs []error) {
	written, deleted := map[Object]bool{}, map[Delete]bool{}
	for _, e := range h.changes {
		if e.Type == Deleted {
			deleted[Delete{e.Key, e.UID}] = true
		} else {
			written[e.Object] = true
		}
	}
	for _, w := range writes {
		if !written[w.Object] {
			errs = append(errs, fmt.Errorf("the history lacks the successful write %+v", w.Object))
		}
		if w.Version <= w.After {
			errs = append(errs, fmt.Errorf("the write %+v follows version %d", w.Object, w.After))
		}
	}
	for _, d := range deletes {
		if !deleted[d] {
			errs = append(errs, fmt.Errorf("the history lacks the successful delete %+v", d))
		}
	}
	return errs
}
