package ruleset

import (
	"maps"
	"slices"
)

// journal is a map that remembers what it had when its changes were taken last.
type journal[K comparable, V any] struct {
	now   map[K]V
	equal func(a, b V) bool
	// before has the former values of the keys that have changed; nil if they had none.
	before map[K]*V
}

func newJournal[K comparable, V any](equal func(a, b V) bool) journal[K, V] {
	return journal[K, V]{now: map[K]V{}, before: map[K]*V{}, equal: equal}
}

func (j *journal[K, V]) set(k K, v V) {
	j.touch(k)
	j.now[k] = v
}

func (j *journal[K, V]) remove(k K) {
	j.touch(k)
	delete(j.now, k)
}

func (j *journal[K, V]) touch(k K) {
	if _, touched := j.before[k]; touched {
		return
	}
	if v, found := j.now[k]; found {
		j.before[k] = &v
	} else {
		j.before[k] = nil
	}
}

// forget makes every value a new one.
func (j *journal[K, V]) forget() {
	j.before = make(map[K]*V, len(j.now))
	for k := range j.now {
		j.before[k] = nil
	}
}

// change is a key whose value has changed: before or after is nil if it had or has none.
type change[K comparable, V any] struct {
	key           K
	before, after *V
}

// take returns the changes since the last call, sorted by key.
func (j *journal[K, V]) take(compare func(a, b K) int) []change[K, V] {
	var changes []change[K, V]
	for _, k := range slices.SortedFunc(maps.Keys(j.before), compare) {
		c := change[K, V]{key: k, before: j.before[k]}
		if v, found := j.now[k]; found {
			c.after = &v
		}
		switch {
		case c.before == nil && c.after == nil, c.before != nil && c.after != nil && j.equal(*c.before, *c.after):
		default:
			changes = append(changes, c)
		}
	}
	clear(j.before)
	return changes
}
