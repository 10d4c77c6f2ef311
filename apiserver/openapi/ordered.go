package openapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// largeMap is the number of keys from which a map is iterated over in the order of its
// keys. Sets of fields are sorted slices: to insert keys in Go's random order takes time
// quadratic in their number, 100,000 keys more than ten seconds.
const largeMap = 1000

// largeObject is the size in bytes, as protobuf, from which an object may have a
// large map for which the order matters.
const largeObject = 64 << 10

// inOrder returns v, the typed value of obj, such that its large maps are iterated over in the
// order of their keys. The values of most objects are returned as they are.
func inOrder(obj runtime.Object, v *typed.TypedValue) *typed.TypedValue {
	switch o := obj.(type) {
	case runtime.Unstructured:
		if !hasLargeMap(o.UnstructuredContent()) {
			return v
		}
	case interface{ Size() int }:
		if o.Size() < largeObject {
			return v
		}
	}
	//nolint:staticcheck // v has been validated, if it must be.
	return typed.AsTypedUnvalidated(orderedValue(v.AsValue()), v.Schema(), v.TypeRef())
}

func hasLargeMap(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if len(v) >= largeMap {
			return true
		}
		for _, member := range v {
			if hasLargeMap(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasLargeMap)
	}
	return false
}

// orderedValue returns v with ordered maps.
func orderedValue(v value.Value) value.Value {
	if v == nil || !v.IsMap() && !v.IsList() {
		return v
	}
	if _, done := v.(ordered); done {
		return v
	}
	return ordered{v}
}

// ordered is a value whose large maps, at any depth, are iterated over in the order of their keys.
type ordered struct{ value.Value }

// AsMap implements value.Value.
func (o ordered) AsMap() value.Map { return orderedMap{o.Value.AsMap()} }

// AsMapUsing implements value.Value.
func (o ordered) AsMapUsing(a value.Allocator) value.Map { return orderedMap{o.Value.AsMapUsing(a)} }

// AsList implements value.Value.
func (o ordered) AsList() value.List { return orderedList{o.Value.AsList()} }

// AsListUsing implements value.Value.
func (o ordered) AsListUsing(a value.Allocator) value.List {
	return orderedList{o.Value.AsListUsing(a)}
}

type orderedMap struct{ value.Map }

// Get implements value.Map.
func (m orderedMap) Get(key string) (value.Value, bool) {
	return m.GetUsing(value.HeapAllocator, key)
}

// GetUsing implements value.Map.
func (m orderedMap) GetUsing(a value.Allocator, key string) (value.Value, bool) {
	v, ok := m.Map.GetUsing(a, key)
	return orderedValue(v), ok
}

// Iterate implements value.Map.
func (m orderedMap) Iterate(f func(key string, v value.Value) bool) bool {
	return m.IterateUsing(value.HeapAllocator, f)
}

// IterateUsing implements value.Map.
func (m orderedMap) IterateUsing(a value.Allocator, f func(key string, v value.Value) bool) bool {
	return m.ZipUsing(a, nil, value.Unordered, func(key string, v, _ value.Value) bool { return f(key, v) })
}

// Zip implements value.Map.
func (m orderedMap) Zip(other value.Map, order value.MapTraverseOrder, f func(key string, a, b value.Value) bool) bool {
	return m.ZipUsing(value.HeapAllocator, other, order, f)
}

// ZipUsing implements value.Map.
func (m orderedMap) ZipUsing(a value.Allocator, other value.Map, order value.MapTraverseOrder, f func(key string, a, b value.Value) bool) bool {
	if o, ok := other.(orderedMap); ok {
		other = o.Map
	}
	if m.Length() >= largeMap || other != nil && other.Length() >= largeMap {
		order = value.LexicalKeyOrder
	}
	return m.Map.ZipUsing(a, other, order, func(key string, a, b value.Value) bool {
		return f(key, orderedValue(a), orderedValue(b))
	})
}

type orderedList struct{ value.List }

// At implements value.List.
func (l orderedList) At(i int) value.Value { return orderedValue(l.List.At(i)) }

// AtUsing implements value.List.
func (l orderedList) AtUsing(a value.Allocator, i int) value.Value {
	return orderedValue(l.List.AtUsing(a, i))
}

// Range implements value.List.
func (l orderedList) Range() value.ListRange { return orderedRange{l.List.Range()} }

// RangeUsing implements value.List.
func (l orderedList) RangeUsing(a value.Allocator) value.ListRange {
	return orderedRange{l.List.RangeUsing(a)}
}

type orderedRange struct{ value.ListRange }

// Item implements value.ListRange.
func (r orderedRange) Item() (int, value.Value) {
	i, v := r.ListRange.Item()
	return i, orderedValue(v)
}
