package history

import (
	"errors"
	"fmt"
	"slices"
)

// Watch is one watch, from its start to its end.
type Watch struct {
	Name string
	Selector
	From    uint64 // the version after which it starts
	Initial bool   // it starts with the objects that exist instead
	AtLeast uint64 // the lowest version of the bookmark that ends the initial events
	Events  []Event
	// Complete is set if it lasted until after the last change.
	Complete bool
}

// checkWatch checks that a watch has all events from its start on, in order, each once,
// and that all events up to the version of a bookmark came before it.
func (h *history) checkWatch(w Watch) error {
	if w.Initial {
		return h.checkInitial(w)
	}
	return h.checkEvents(w, w.From, w.Events)
}

// checkEvents checks the events of a watch that follow a version.
func (h *history) checkEvents(w Watch, from uint64, events []Event) error {
	expected := h.sent(w.Selector)
	next := after(expected, from)
	last := from
	for _, e := range events {
		pending := next < len(expected)
		switch {
		case e.Version < last || e.Version == last && e.Type != Bookmark:
			return fmt.Errorf("%s of version %d after version %d", e.Type, e.Version, last)
		case e.Type == Bookmark && pending && expected[next].Version <= e.Version:
			return fmt.Errorf("a bookmark of version %d before %+v", e.Version, expected[next])
		case e.InitialEnd && e.Version < w.AtLeast:
			return fmt.Errorf("initial events end at version %d, want at least %d", e.Version, w.AtLeast)
		case e.Type == Bookmark:
		case pending && expected[next] == e:
			next++
		case pending && expected[next].Version < e.Version:
			return fmt.Errorf("%+v after version %d, but not %+v", e, last, expected[next])
		default:
			return fmt.Errorf("%+v after version %d, which is no change", e, last)
		}
		last = e.Version
	}
	if w.Complete && next < len(expected) {
		return fmt.Errorf("%d events are missing at the end, from %+v", len(expected)-next, expected[next])
	}
	return nil
}

// checkInitial looks for a version of which the watch has all objects first and all
// events from then on.
func (h *history) checkInitial(w Watch) error {
	current := state{}
	err := h.checkInitialAt(w, current, 0)
	for _, e := range h.changes {
		if err == nil {
			return nil
		}
		current.apply(e)
		if next := h.checkInitialAt(w, current, e.Version); !errors.Is(next, errNotState) {
			err = next
		}
	}
	return err
}

var errNotState = errors.New("initial events are not the objects of any version")

func (h *history) checkInitialAt(w Watch, current state, version uint64) error {
	n := len(current.selected(w.Selector))
	first := w.Events[:min(n, len(w.Events))]
	seen := map[string]bool{}
	for _, e := range first {
		if e.Type != Added || current[e.Key] != e.Object || !w.matches(e.Object) || seen[e.Key] {
			return errNotState
		}
		seen[e.Key] = true
	}
	if len(first) < n {
		if w.Complete {
			return errNotState
		}
		return nil // it ended before the last
	}
	return h.checkEvents(w, version, w.Events[n:])
}

// sent returns the events of a watch with a selector, from the first change on. An object
// that begins to match is added, and one that no longer matches is deleted.
func (h *history) sent(selector Selector) []Event {
	if events, ok := h.selected[selector]; ok {
		return events
	}
	var events []Event
	current := state{}
	for _, e := range h.changes {
		before, exists := current[e.Key]
		matched, matches := exists && selector.matches(before), e.Type != Deleted && selector.matches(e.Object)
		current.apply(e)
		switch {
		case matches && matched:
			events = append(events, Event{Type: Modified, Object: e.Object})
		case matches:
			events = append(events, Event{Type: Added, Object: e.Object})
		case matched:
			before.Version = e.Version
			events = append(events, Event{Type: Deleted, Object: before})
		}
	}
	h.selected[selector] = events
	return events
}

// after returns the index of the first event after a version.
func after(events []Event, version uint64) int {
	i, _ := slices.BinarySearchFunc(events, version+1, func(e Event, version uint64) int {
		if e.Version < version {
			return -1
		}
		return 1
	})
	return i
}
