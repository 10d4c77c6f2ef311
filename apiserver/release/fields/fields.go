// Package fields owns the fields, and the values of enumerations, that the emulated
// release does not have, though the Go types do.
//
// Such a field is an unknown field (document 1, section 6): a request cannot set it, and
// no document describes it. Objects that have it already, because a newer release or the
// server itself wrote it, show it and keep it: patches and applied configurations leave
// it as it is, as Kubernetes keeps disabled fields that are in use. An update replaces
// the whole object, and drops it with the warning for an unknown field.
//
// What a kind lacks is found with its first write, from the table of releases.
package fields

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

// Fields are the fields of a release. Its methods may be called concurrently; those of a
// nil Fields find nothing.
type Fields struct {
	release releases.Release
	table   *releases.Table // its kinds
	kinds   sync.Map        // *Node by kindKey
	// former is the reverse, whose own is nil.
	former *Fields
	// reverse is set for the fields that the release has and the Go types do not.
	reverse bool

	mu    sync.Mutex
	built map[nodeKey]*Node // nil for types that lack nothing
}

type kindKey struct {
	gvk schema.GroupVersionKind
	of  reflect.Type
}

type nodeKey struct {
	of reflect.Type
	in string // package.name in the table
}

// New returns the fields of a release, or nil for the newest one, which has them all.
// The table needs no types.
func New(release releases.Release, table *releases.Table) *Fields {
	if release >= releases.Newest {
		return nil
	}
	former := &Fields{release: release, table: table, built: map[nodeKey]*Node{}, reverse: true}
	return &Fields{release: release, table: table, built: map[nodeKey]*Node{}, former: former}
}

// Former returns the reverse: the fields that the release has and that the Go types, which
// are those of the newest release, no longer do. Its nodes find them in documents.
func (f *Fields) Former() *Fields {
	if f == nil {
		return nil
	}
	return f.former
}

// Node is what a type lacks: fields of its own, and what the types of its fields lack.
// A nil Node lacks nothing.
type Node struct {
	of      reflect.Type
	members []member
}

// member is a field that the release lacks, or with a type that lacks something.
type member struct {
	name    string
	index   []int // of the field in the Go type
	missing bool
	inner   *Node // of the value, its items or its values
	keyed   bool  // the value is a map
	// values are those of the enumeration, if the release lacks some.
	values []string
}

// Of returns what a kind lacks, whose Go type is given. It is nil for kinds that the
// release does not serve, and for those that are in no release.
func (f *Fields) Of(gvk schema.GroupVersionKind, of reflect.Type) *Node {
	if f == nil {
		return nil
	}
	key := kindKey{gvk, of}
	if known, ok := f.kinds.Load(key); ok {
		return known.(*Node)
	}
	var made *Node
	if kind := f.table.Kind(gvk); kind != nil && kind.ServedAt(f.release) {
		made = f.build(of, kind.Package+"."+kind.Kind)
	}
	f.kinds.Store(key, made)
	return made
}

// Lacks reports whether other releases have the field at path of a kind, and this one has
// the kind but not the field. It needs no Go type.
func (f *Fields) Lacks(gvk schema.GroupVersionKind, path ...string) bool {
	if f == nil {
		return false
	}
	kind := f.table.Kind(gvk)
	if kind == nil || !kind.ServedAt(f.release) {
		return false
	}
	in, lacking := kind.Package+"."+kind.Kind, false
	for _, name := range path {
		t := releases.FindType(in)
		if t == nil {
			return false
		}
		i := slices.IndexFunc(t.Fields, func(field releases.Field) bool { return field.Name == name })
		if i < 0 {
			return false
		}
		lacking = lacking || !t.Fields[i].In.Has(f.release)
		in = nameIn(t.Package, t.Fields[i].Type)
	}
	return lacking
}

// build returns what a type lacks.
func (f *Fields) build(of reflect.Type, in string) *Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var made []nodeKey
	f.collect(of, in, &made)
	f.simplify(made)
	return f.built[nodeKey{of, in}]
}

// collect builds the nodes of a type and of all that it reaches, and adds their keys.
func (f *Fields) collect(of reflect.Type, in string, made *[]nodeKey) *Node {
	key := nodeKey{of, in}
	if known, ok := f.built[key]; ok {
		return known
	}
	n := &Node{of: of}
	f.built[key] = n // before its fields: types may be recursive
	*made = append(*made, key)
	t := releases.FindType(in)
	if t == nil || !slices.ContainsFunc(t.Fields, func(field releases.Field) bool { return field.In.Has(f.release) }) {
		return n
	}
	known := map[string]bool{}
	for _, field := range fieldsOf(of, nil) {
		known[field.name] = true
		row, has := t.Field(field.name, f.release)
		if row == nil {
			continue // no release has it: a field of svc's own
		}
		m := member{name: field.name, index: field.index, missing: !has && !f.reverse}
		if has && row.Type != "" {
			inner, keyed := valueOf(field.of)
			m.keyed = keyed
			switch name := nameIn(t.Package, row.Type); {
			case row.Enum:
				if !f.reverse {
					m.values = f.values(name)
				}
			case row.Shape == releases.Either:
				if inner = alternative(inner); inner != nil {
					m.inner = f.collect(inner, name, made)
				}
			case inner.Kind() == reflect.Struct:
				m.inner = f.collect(inner, name, made)
			}
		}
		if m.missing || m.inner != nil || m.values != nil {
			n.members = append(n.members, m)
		}
	}
	for i := range t.Fields {
		if row := &t.Fields[i]; f.reverse && !known[row.Name] && row.In.Has(f.release) {
			n.members = append(n.members, member{name: row.Name, missing: true})
		}
	}
	return n
}

// nameIn returns package.name of the type of a field of a type of the package.
func nameIn(in, name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return in + "." + name
}

// values returns the values that the release has of an enumeration which has others
// now, sorted. It returns nil for an enumeration that lacks none, and for one that the
// release does not have at all.
func (f *Fields) values(name string) []string {
	t := releases.FindType(name)
	if t == nil {
		return nil
	}
	var values []string
	for _, v := range t.Fields {
		if v.In.Has(f.release) {
			values = append(values, v.Name)
		}
	}
	if len(values) == len(t.Fields) {
		return nil
	}
	slices.Sort(values)
	return values
}

// simplify removes nodes that lack nothing. Nodes that were built before lack something.
func (f *Fields) simplify(made []nodeKey) {
	nothing := map[*Node]bool{nil: true}
	for _, key := range made {
		nothing[f.built[key]] = true
	}
	lacks := func(m member) bool { return m.missing || m.values != nil || !nothing[m.inner] }
	for changed := true; changed; {
		changed = false
		for _, key := range made {
			if n := f.built[key]; nothing[n] && slices.ContainsFunc(n.members, lacks) {
				nothing[n], changed = false, true
			}
		}
	}
	for _, key := range made {
		n := f.built[key]
		n.members = slices.DeleteFunc(n.members, func(m member) bool { return !lacks(m) })
		if nothing[n] {
			f.built[key] = nil
		}
	}
}

// goField is a field of a Go type by its name in JSON.
type goField struct {
	name  string
	index []int
	of    reflect.Type
}

// fieldsOf returns the fields of a struct, those of structs that are inlined among them.
func fieldsOf(t reflect.Type, prefix []int) []goField {
	var fields []goField
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		index := append(slices.Clone(prefix), i)
		switch {
		case name == "-" || !field.IsExported():
		case name != "":
			fields = append(fields, goField{name, index, field.Type})
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(field.Type, index)...)
		}
	}
	return fields
}

// valueOf returns the type of a field's value, or of the items or values of it, and
// whether it is a map.
func valueOf(t reflect.Type) (value reflect.Type, keyed bool) {
	for {
		switch t.Kind() {
		case reflect.Map:
			keyed = true
			t = t.Elem()
		case reflect.Pointer, reflect.Slice:
			t = t.Elem()
		default:
			return t, keyed
		}
	}
}

// alternative returns the type of the objects in a type that is an object, a list of
// objects or something else, such as JSONSchemaPropsOrArray; nil if it has none.
func alternative(t reflect.Type) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		if inner, _ := valueOf(t.Field(i).Type); inner.Kind() == reflect.Struct {
			return inner
		}
	}
	return nil
}

// path is where a value is in an object: the field of a parent, an item of its list or
// a value of its map.
type path struct {
	parent *path
	name   string
	index  int // of an item; its name is empty
}

// String returns the path in the form of the decoder's errors: spec.containers[0].image.
func (p *path) String() string {
	switch {
	case p == nil:
		return ""
	case p.name == "":
		return fmt.Sprintf("%s[%d]", p.parent, p.index)
	case p.parent == nil:
		return p.name
	}
	return p.parent.String() + "." + p.name
}

// unknown returns the decoder's words for a field that it does not know.
func unknown(at *path) string { return fmt.Sprintf("unknown field %q", at) }
