package history

import (
	"testing"

	. "github.com/onsi/gomega"
)

func object(key, value, label string, version uint64) Object {
	return Object{Key: key, UID: key + "-uid", Value: value, Label: label, Version: version}
}

func event(kind string, o Object, version uint64) Event {
	o.Version = version
	return Event{Type: kind, Object: o}
}

func bookmark(version uint64) Event { return Event{Type: Bookmark, Object: Object{Version: version}} }

var (
	a2 = object("a", "1", "odd", 2)
	b3 = object("b", "2", "even", 3)
	a5 = object("a", "3", "even", 5)
	// The changes: a is odd at 2 and even at 5, b exists from 3 until 7.
	all  = []Event{event(Added, a2, 2), event(Added, b3, 3), event(Modified, a5, 5), event(Deleted, b3, 7)}
	even = Selector{Label: "even"}
)

func end(version uint64) Event {
	e := bookmark(version)
	e.InitialEnd = true
	return e
}

func TestWatches(t *testing.T) {
	for _, c := range []struct {
		rule   string
		broken string // the error, or "" if the watch breaks no rule
		watch  Watch
	}{
		{"a watch has the events from its start on", "", Watch{From: 2, Events: all[1:], Complete: true}},
		{"a watch may end early", "", Watch{From: 2, Events: all[1:2]}},
		{"ordered: versions increase", "version 2 after version 3", Watch{From: 1, Events: []Event{all[0], all[1], all[0]}}},
		{"ordered: no later event comes first", "but not", Watch{From: 1, Events: []Event{all[1]}}},
		{"unique: an event comes once", "version 2 after version 2", Watch{From: 1, Events: []Event{all[0], all[0]}}},
		{"unique: an event is not of another object", "which is no change", Watch{From: 1, Events: []Event{event(Added, b3, 2)}}},
		{"atomic: an event has the whole object", "which is no change", Watch{From: 1, Events: []Event{event(Added, object("a", "1", "even", 2), 2)}}},
		{"reliable: no event is missing", "but not", Watch{From: 1, Events: []Event{all[0], all[2]}}},
		{"reliable: no event is missing at the end", "1 events are missing", Watch{From: 1, Events: all[:3], Complete: true}},
		{"resumable: no event up to the start comes again", "version 2 after version 2", Watch{From: 2, Events: all}},
		{"resumable: no event after the start is missing", "but not", Watch{From: 2, Events: all[2:]}},
		{"bookmarkable: a bookmark follows all events up to it", "", Watch{From: 1, Events: []Event{all[0], bookmark(2), all[1], bookmark(4), all[2], all[3], bookmark(9)}}},
		{"bookmarkable: a bookmark does not precede an event", "a bookmark of version 4 before", Watch{From: 1, Events: []Event{all[0], bookmark(4)}}},
		{"bookmarkable: a bookmark does not go back", "BOOKMARK of version 1 after", Watch{From: 1, Events: []Event{all[0], bookmark(1)}}},
		{"selected: an object that begins to match is added", "", Watch{Selector: even, From: 3, Events: []Event{event(Added, a5, 5), all[3]}, Complete: true}},
		{"selected: an object that no longer matches is deleted", "", Watch{Selector: Selector{Label: "odd"}, From: 2, Events: []Event{event(Deleted, a2, 5)}, Complete: true}},
		{"selected: that is not left out", "1 events are missing", Watch{Selector: Selector{Label: "odd"}, From: 2, Complete: true}},
		{"selected: no other object is sent", "but not", Watch{Selector: Selector{Key: "a"}, From: 2, Events: []Event{all[3]}}},
		{"initial: the objects of a version and the events after it", "", Watch{Initial: true, AtLeast: 4, Events: []Event{all[1], all[0], end(4), all[2], all[3]}, Complete: true}},
		{"initial: only those that match", "", Watch{Selector: even, Initial: true, Events: []Event{all[1], event(Added, a5, 5), all[3]}, Complete: true}},
		{"initial: it may end early", "", Watch{Initial: true, Events: []Event{all[1]}}},
		{"initial: no object is missing", "version 5 after version 7", Watch{Initial: true, Events: []Event{event(Added, a5, 5), end(5)}}},
		{"initial: no object comes that did not exist", "but not", Watch{Initial: true, Events: []Event{event(Added, object("c", "", "", 4), 4)}}},
		{"initial: objects are of one version", "but not", Watch{Initial: true, Events: []Event{all[1], end(4), all[2]}}},
		{"initial: no event is missing afterwards", "but not", Watch{Initial: true, Events: []Event{all[0], all[1], end(4), all[3]}}},
		{"initial: the bookmark is of the requested version or later", "want at least 5", Watch{Initial: true, AtLeast: 5, Events: []Event{all[0], all[1], end(4)}}},
	} {
		t.Run(c.rule, func(t *testing.T) { expect(t, Run{Changes: all, Watches: []Watch{c.watch}}, c.broken) })
	}
}

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		rule, broken string
		events       []Event
	}{
		{"an object is added once", "adds an object that exists", []Event{all[0], event(Added, a2, 3)}},
		{"an object is added before it changes", "does not exist", []Event{all[2]}},
		{"an object keeps its UID", "does not exist", []Event{all[0], event(Modified, Object{Key: "a", UID: "other"}, 3)}},
		{"a delete has the last state", "which was", []Event{all[0], event(Deleted, a5, 6)}},
	} {
		t.Run(c.rule, func(t *testing.T) { expect(t, Run{Changes: c.events}, c.broken) })
	}
}

func TestReadsAndWrites(t *testing.T) {
	for _, c := range []struct {
		rule, broken string
		run          Run
	}{
		{"a list has the objects of its version", "", Run{Lists: []List{{Version: 4, AtLeast: 4, Exactly: 4, Objects: []Object{a2, b3}}, {Version: 9, Objects: []Object{a5}}, {Version: 6, Selector: even, Objects: []Object{a5, b3}}}}},
		{"a list has no older object", "version 5 has", Run{Lists: []List{{Version: 5, Objects: []Object{a2, b3}}}}},
		{"a list misses no object", "version 4 has", Run{Lists: []List{{Version: 4, Objects: []Object{a2}}}}},
		{"a list has an object once", "version 4 has", Run{Lists: []List{{Version: 4, Objects: []Object{a2, a2}}}}},
		{"a list has what matches only", "version 4 has", Run{Lists: []List{{Version: 4, Selector: even, Objects: []Object{a2, b3}}}}},
		{"a list is not older than requested", "want at least 5", Run{Lists: []List{{Version: 4, AtLeast: 5, Objects: []Object{a2, b3}}}}},
		{"a list is of the exact version", "want 4", Run{Lists: []List{{Version: 3, Exactly: 4, Objects: []Object{a2, b3}}}}},
		{"a get returns an object that existed", "", Run{Gets: []Get{{Object: a2, AtLeast: 4}, {Object: b3, AtLeast: 6}}}},
		{"a get returns nothing that was never written", "the history lacks", Run{Gets: []Get{{Object: object("a", "2", "odd", 2)}}}},
		{"a get is not older than requested", "but 5 is not after 5", Run{Gets: []Get{{Object: a2, AtLeast: 5}}}},
		{"a get is not of an object deleted before", "but 7 is not after 7", Run{Gets: []Get{{Object: b3, AtLeast: 7}}}},
		{"a successful write is sent to watches", "", Run{Writes: []Write{{Object: a2, After: 1}}, Deletes: []Delete{{"b", "b-uid"}}}},
		{"a successful write is not lost", "the history lacks the successful write", Run{Writes: []Write{{Object: object("c", "", "", 4)}}}},
		{"a successful delete is not lost", "the history lacks the successful delete", Run{Deletes: []Delete{{"a", "a-uid"}}}},
		{"a write follows what was seen before", "follows version 2", Run{Writes: []Write{{Object: a2, After: 2}}}},
	} {
		c.run.Changes = all
		t.Run(c.rule, func(t *testing.T) { expect(t, c.run, c.broken) })
	}
}

func expect(t *testing.T, run Run, broken string) {
	t.Helper()
	err := Check(run)
	if broken == "" {
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return
	}
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(broken)))
}
