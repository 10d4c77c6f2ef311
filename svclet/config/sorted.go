package config

import (
	"iter"
	"maps"
	"slices"
)

// sorted iterates over a map in the order of its keys.
func sorted[K ~string, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}
