package convert

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// walk compares an object with the fields that a release has.
type walk struct {
	table   *releases.Table
	release releases.Release
	outcome *Outcome
	patch   bool // directives of strategic merge patches are allowed
}

// object compares the fields of a mapping with those of a type.
func (w *walk) object(of *releases.Type, n *yaml.Node, path string) {
	if of == nil || manifest.IsNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		w.outcome.find(WrongType, Error, Decide, n, path, "must be an object")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if w.patch && strings.HasPrefix(key.Value, "$") {
			continue
		}
		at := join(path, key.Value)
		if seen[key.Value] {
			w.outcome.find(DuplicateField, Error, Decide, key, at, "the field is there twice")
			continue
		}
		seen[key.Value] = true
		f, has := of.Field(key.Value, w.release)
		switch {
		case f == nil && w.outcome.leaves(at): // the conversion has found it
		case f == nil:
			w.outcome.find(UnknownField, Error, Decide, key, at, "no release has this field")
		case !has && w.release < f.In.First:
			w.outcome.find(MissingField, Error, Decide, key, at, fmt.Sprintf("the field is new in %v", f.In.First))
		case !has:
			w.outcome.find(MissingField, Error, Decide, key, at, fmt.Sprintf("the field was removed in %v", f.In.Last+1))
		default:
			if f.Type == "meta/v1.ObjectMeta" {
				w.metadata(n, value, at)
			}
			w.nodeLabels(of, key.Value, value, at)
			w.value(of, f, value, at)
		}
	}
}

// value compares the value of a field.
func (w *walk) value(of *releases.Type, f *releases.Field, n *yaml.Node, path string) {
	t := w.table.TypeOf(of, f)
	if t == nil || manifest.IsNull(n) {
		return
	}
	each := func(n *yaml.Node, path string) { w.object(t, n, path) }
	if f.Enum {
		each = func(n *yaml.Node, path string) { w.enumerated(t, n, path) }
	}
	switch f.Shape {
	case releases.List:
		if n.Kind != yaml.SequenceNode {
			w.outcome.find(WrongType, Error, Decide, n, path, "must be a list")
			return
		}
		for i, item := range n.Content {
			each(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case releases.Map:
		if n.Kind != yaml.MappingNode {
			w.outcome.find(WrongType, Error, Decide, n, path, "must be an object")
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			each(n.Content[i+1], join(path, n.Content[i].Value))
		}
	case releases.Either:
		switch n.Kind {
		case yaml.MappingNode:
			each(n, path)
		case yaml.SequenceNode:
			for i, item := range n.Content {
				if item.Kind == yaml.MappingNode {
					each(item, fmt.Sprintf("%s[%d]", path, i))
				}
			}
		}
	default:
		each(n, path)
	}
}

// enumerated compares a value with those of an enumeration. A value that no release has
// is left to the server: some enumerations are open.
func (w *walk) enumerated(of *releases.Type, n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode {
		return
	}
	f, has := of.Field(n.Value, w.release)
	switch {
	case f == nil || has:
	case w.release < f.In.First:
		w.outcome.find(MissingValue, Error, Decide, n, path, fmt.Sprintf("the value %s is new in %v", n.Value, f.In.First))
	default:
		w.outcome.find(MissingValue, Error, Decide, n, path, fmt.Sprintf("the value %s was removed in %v", n.Value, f.In.Last+1))
	}
}

func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./"):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}
