// Package items owns what lists of objects have in common.
package items

// Pointers returns pointers to the elements of a list, which are not copied.
func Pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
