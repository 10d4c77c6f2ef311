package queue

import (
	"container/heap"

	"k8s.io/utils/ptr"
)

// pile is a heap of entries that know their place in it.
type pile struct {
	entries []*entry
	less    func(a, b *entry) bool
}

func newPile(less func(a, b *entry) bool) *pile { return &pile{less: less} }

// byTurn puts higher priority first, then who came first.
func byTurn(a, b *entry) bool {
	if x, y := ptr.Deref(a.pod.Spec.Priority, 0), ptr.Deref(b.pod.Spec.Priority, 0); x != y {
		return x > y
	}
	return a.turn < b.turn
}

func byRest(a, b *entry) bool   { return a.rested.Before(b.rested) }
func byExpiry(a, b *entry) bool { return a.expires.Before(b.expires) }

// first is the least entry, nil if there is none.
func (p *pile) first() *entry {
	if len(p.entries) == 0 {
		return nil
	}
	return p.entries[0]
}

func (p *pile) add(e *entry) {
	e.pile = p
	heap.Push(p, e)
}

func (p *pile) remove(e *entry) {
	heap.Remove(p, e.index)
	e.pile = nil
}

// Len, Less, Swap, Push and Pop are for package heap.
func (p *pile) Len() int           { return len(p.entries) }
func (p *pile) Less(i, j int) bool { return p.less(p.entries[i], p.entries[j]) }
func (p *pile) Swap(i, j int) {
	p.entries[i], p.entries[j] = p.entries[j], p.entries[i]
	p.entries[i].index, p.entries[j].index = i, j
}
func (p *pile) Push(x any) {
	e := x.(*entry)
	e.index = len(p.entries)
	p.entries = append(p.entries, e)
}
func (p *pile) Pop() any {
	last := len(p.entries) - 1
	e := p.entries[last]
	p.entries[last] = nil
	p.entries = p.entries[:last]
	return e
}
