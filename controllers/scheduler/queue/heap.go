package queue

import (
	"container/heap"

	"k8s.io/utils/ptr"
)

// entries is an ordered set of entries.
type entries interface {
	first() *entry
	add(e *entry)
	remove(e *entry)
}

// sorted is a heap of entries, each with its index in the heap. An entry can be in
// two heaps with different slots, 0 and 1.
type sorted struct {
	heap []*entry
	slot int
	less func(a, b *entry) bool
}

// byPriority reports whether a comes before b: by descending priority, then by sequence.
func byPriority(a, b *entry) bool {
	if x, y := a.priority(), b.priority(); x != y {
		return x > y
	}
	return a.sequence < b.sequence
}

func (e *entry) priority() int32 { return ptr.Deref(e.pod.Spec.Priority, 0) }

func byBackoffEnd(a, b *entry) bool { return a.backoffEnd.Before(b.backoffEnd) }
func byExpiry(a, b *entry) bool     { return a.expires.Before(b.expires) }

// first returns the least entry, nil if there is none.
func (p *sorted) first() *entry {
	if len(p.heap) == 0 {
		return nil
	}
	return p.heap[0]
}

func (p *sorted) add(e *entry)    { heap.Push(p, e) }
func (p *sorted) remove(e *entry) { heap.Remove(p, e.index[p.slot]) }

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (p *sorted) Len() int           { return len(p.heap) }
func (p *sorted) Less(i, j int) bool { return p.less(p.heap[i], p.heap[j]) }
func (p *sorted) Swap(i, j int) {
	p.heap[i], p.heap[j] = p.heap[j], p.heap[i]
	p.heap[i].index[p.slot], p.heap[j].index[p.slot] = i, j
}
func (p *sorted) Push(x any) {
	e := x.(*entry)
	e.index[p.slot] = len(p.heap)
	p.heap = append(p.heap, e)
}
func (p *sorted) Pop() any {
	last := len(p.heap) - 1
	e := p.heap[last]
	p.heap[last] = nil
	p.heap = p.heap[:last]
	return e
}

// backoffHeap has the entries that back off, ordered both by the end of the backoff
// and by priority.
type backoffHeap struct{ byEnd, byPriority *sorted }

func newBackoffHeap() backoffHeap {
	return backoffHeap{byEnd: &sorted{less: byBackoffEnd, slot: 0}, byPriority: &sorted{less: byPriority, slot: 1}}
}

func (b backoffHeap) first() *entry { return b.byEnd.first() }

// highestPriority returns the entry that would be popped first if it were active.
func (b backoffHeap) highestPriority() *entry { return b.byPriority.first() }

func (b backoffHeap) add(e *entry) {
	b.byEnd.add(e)
	b.byPriority.add(e)
}

func (b backoffHeap) remove(e *entry) {
	b.byEnd.remove(e)
	b.byPriority.remove(e)
}
