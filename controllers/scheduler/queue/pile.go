package queue

import (
	"container/heap"

	"k8s.io/utils/ptr"
)

// pile is a set of entries with a first one.
type pile interface {
	first() *entry
	add(e *entry)
	remove(e *entry)
}

// sorted is a heap of entries that know their place in it. An entry may be in
// two heaps with different slots, 0 and 1.
type sorted struct {
	entries []*entry
	slot    int
	less    func(a, b *entry) bool
}

// byTurn puts higher priority first, then who came first.
func byTurn(a, b *entry) bool {
	if x, y := a.priority(), b.priority(); x != y {
		return x > y
	}
	return a.turn < b.turn
}

func (e *entry) priority() int32 { return ptr.Deref(e.pod.Spec.Priority, 0) }

func byRest(a, b *entry) bool   { return a.rested.Before(b.rested) }
func byExpiry(a, b *entry) bool { return a.expires.Before(b.expires) }

// first is the least entry, nil if there is none.
func (p *sorted) first() *entry {
	if len(p.entries) == 0 {
		return nil
	}
	return p.entries[0]
}

func (p *sorted) add(e *entry)    { heap.Push(p, e) }
func (p *sorted) remove(e *entry) { heap.Remove(p, e.index[p.slot]) }

// Len, Less, Swap, Push and Pop are for package heap.
func (p *sorted) Len() int           { return len(p.entries) }
func (p *sorted) Less(i, j int) bool { return p.less(p.entries[i], p.entries[j]) }
func (p *sorted) Swap(i, j int) {
	p.entries[i], p.entries[j] = p.entries[j], p.entries[i]
	p.entries[i].index[p.slot], p.entries[j].index[p.slot] = i, j
}
func (p *sorted) Push(x any) {
	e := x.(*entry)
	e.index[p.slot] = len(p.entries)
	p.entries = append(p.entries, e)
}
func (p *sorted) Pop() any {
	last := len(p.entries) - 1
	e := p.entries[last]
	p.entries[last] = nil
	p.entries = p.entries[:last]
	return e
}

// resting are entries that back off: the first is whose rest is over first.
type resting struct{ byRest, byTurn *sorted }

func newResting() resting {
	return resting{byRest: &sorted{less: byRest, slot: 0}, byTurn: &sorted{less: byTurn, slot: 1}}
}

func (r resting) first() *entry { return r.byRest.first() }

// important is the entry whose turn would be next.
func (r resting) important() *entry { return r.byTurn.first() }

func (r resting) add(e *entry) {
	r.byRest.add(e)
	r.byTurn.add(e)
}

func (r resting) remove(e *entry) {
	r.byRest.remove(e)
	r.byTurn.remove(e)
}
