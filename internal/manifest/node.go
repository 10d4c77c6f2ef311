package manifest

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Get returns the value at a path of keys, or nil.
func Get(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		i := index(n, key)
		if i < 0 {
			return nil
		}
		n = n.Content[i+1]
	}
	return n
}

// Key returns the node of a key of a mapping, or nil.
func Key(m *yaml.Node, key string) *yaml.Node {
	if i := index(m, key); i >= 0 {
		return m.Content[i]
	}
	return nil
}

// index returns where a key of a mapping is, or -1.
func index(m *yaml.Node, key string) int {
	if m == nil || m.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// Text returns the scalar at a path of keys, empty if there is none.
func Text(n *yaml.Node, keys ...string) string {
	if value := Get(n, keys...); value != nil && value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
		return value.Value
	}
	return ""
}

// IsNull reports whether a value is absent or null.
func IsNull(n *yaml.Node) bool { return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Items returns the items of a list at a path of keys.
func Items(n *yaml.Node, keys ...string) []*yaml.Node {
	if list := Get(n, keys...); list != nil && list.Kind == yaml.SequenceNode {
		return list.Content
	}
	return nil
}

// Set sets a key of a mapping: in its place, or after the last. It does nothing to what
// is not a mapping.
func Set(m *yaml.Node, key string, value *yaml.Node) {
	if m == nil || m.Kind != yaml.MappingNode {
		return
	}
	if i := index(m, key); i >= 0 {
		m.Content[i+1] = value
		return
	}
	m.Content = append(m.Content, String(key), value)
}

// SetFirst is Set, except that a new key is before the others.
func SetFirst(m *yaml.Node, key string, value *yaml.Node) {
	if m == nil || m.Kind != yaml.MappingNode || index(m, key) >= 0 {
		Set(m, key, value)
		return
	}
	m.Content = append([]*yaml.Node{String(key), value}, m.Content...)
}

// SetAfter is Set, except that a new key is after another one, if that is there.
func SetAfter(m *yaml.Node, after, key string, value *yaml.Node) {
	i := index(m, after)
	if i < 0 || index(m, key) >= 0 {
		Set(m, key, value)
		return
	}
	m.Content = slices.Insert(m.Content, i+2, String(key), value)
}

// Ensure returns the mapping at a key of a mapping, which it adds if it is not there.
func Ensure(m *yaml.Node, key string) *yaml.Node {
	if value := Get(m, key); !IsNull(value) {
		return value
	}
	value := Map()
	Set(m, key, value)
	return value
}

// Delete removes a key of a mapping and returns its value, or nil.
func Delete(m *yaml.Node, key string) *yaml.Node {
	i := index(m, key)
	if i < 0 {
		return nil
	}
	value := m.Content[i+1]
	m.Content = slices.Delete(m.Content, i, i+2)
	return value
}

// Rename gives a key of a mapping another name and reports whether it was there.
func Rename(m *yaml.Node, from, to string) bool {
	i := index(m, from)
	if i < 0 {
		return false
	}
	m.Content[i].Value = to
	return true
}

// SetText changes a scalar in place, with its quotes and comments.
func SetText(n *yaml.Node, value string) { n.Value = value }

// String returns a text.
func String(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if s != "" && n.Style == 0 {
		n.Tag = "!!str" // the encoder quotes what YAML 1.2 would read as another type
		if needsQuotes(n) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n
}

// Int returns a number.
func Int(i int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(i, 10)}
}

// Bool returns true or false.
func Bool(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}

// Map returns a mapping of keys and values in turn; a nil value is left out.
func Map(entries ...any) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(entries); i += 2 {
		if value, ok := entries[i+1].(*yaml.Node); ok && value != nil {
			m.Content = append(m.Content, String(entries[i].(string)), value)
		}
	}
	return m
}

// List returns a list.
func List(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// Clone returns a deep copy.
func Clone(n *yaml.Node) *yaml.Node {
	if n == nil {
		return nil
	}
	return clone(n)
}
