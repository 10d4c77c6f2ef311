package fields

import (
	_ "embed" // the list
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

//go:embed gated.txt
var gatedText string

// gatedField is a line of gated.txt: a field that is dropped unless a gate is on.
type gatedField struct {
	// field is the name; inner, if not empty, is the name in its type, and only there.
	field, inner string
	// if set, the field is dropped only if this field of its value is not empty.
	with string
	// value is set instead of none.
	value string
	// defaulted reports whether the field has a default, and since is the first release with
	// it, if that does not depend on a gate.
	defaulted bool
	since     releases.Release
	// quiet reports whether admission sets the field, so that no text tells of it.
	quiet bool
	gates []string
}

// readGated returns the lines of gated.txt by type, as core/v1.PodSpec.
var readGated = sync.OnceValues(func() (map[string][]gatedField, error) {
	all := map[string][]gatedField{}
	for line := range strings.Lines(gatedText) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 3 {
			return nil, fmt.Errorf("gated.txt: %q is not a type, a field and gates", line)
		}
		f := gatedField{}
		for _, gate := range words[2:] {
			if since, err := releases.ParseRelease(gate); err == nil {
				f.since = since
			}
			f.gates = append(f.gates, featuregates.Own(gate))
		}
		f.field, f.defaulted = strings.CutSuffix(words[1], "*")
		f.field, f.quiet = strings.CutSuffix(f.field, "~")
		f.field, f.value, _ = strings.Cut(f.field, "=")
		f.field, f.with, _ = strings.Cut(f.field, "?")
		f.field, f.inner, _ = strings.Cut(f.field, ".")
		all[words[0]] = append(all[words[0]], f)
	}
	return all, nil
})

// ActsOn reports whether fields are dropped unless a gate is on.
func ActsOn(gate string) bool {
	all, err := readGated()
	if err != nil {
		return false
	}
	for _, fields := range all {
		for _, f := range fields {
			if slices.Contains(f.gates, gate) {
				return true
			}
		}
	}
	return false
}

// Gated are the fields that writes lose because their feature gates are off. Its methods
// may be called concurrently.
//
// Such a field is known: no request is refused because of it, and documents describe it.
// An object that has a field of a feature already keeps all fields of it, as in Kubernetes.
type Gated struct {
	// off are the fields by type, and by type and ! those of a kind that its type does not
	// lose inside of other kinds.
	off map[string][]gatedField
	// defaulted are those with defaults; its own is nil.
	defaulted *Gated

	mu sync.RWMutex
	// kinds are what kinds lose, and built what types inside of them lose; nil for nothing.
	kinds, built map[reflect.Type]*gatedNode
}

// NewGated returns the fields whose gates a release has and that are off. enabled reports
// whether a gate is on.
func NewGated(r releases.Release, enabled func(gate string) bool) (*Gated, error) {
	all, err := readGated()
	if err != nil {
		return nil, err
	}
	gates, err := featuregates.At(r)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, gate := range gates {
		has[gate.Name] = true
	}
	empty := func() *Gated {
		return &Gated{off: map[string][]gatedField{}, kinds: map[reflect.Type]*gatedNode{}, built: map[reflect.Type]*gatedNode{}}
	}
	g := empty()
	g.defaulted = empty()
	for in, fields := range all {
		for _, f := range fields {
			if f.since > r {
				g.defaulted.off[in] = append(g.defaulted.off[in], f)
			}
			f.gates = slices.DeleteFunc(slices.Clone(f.gates), func(name string) bool { return !has[name] })
			if len(f.gates) > 0 && !slices.ContainsFunc(f.gates, enabled) {
				g.off[in] = append(g.off[in], f)
				if f.defaulted {
					g.defaulted.off[in] = append(g.defaulted.off[in], f)
				}
			}
		}
	}
	return g, nil
}

// gatedNode is what a type loses: fields of its own, and what the types of its fields lose.
// A nil gatedNode loses nothing.
type gatedNode struct {
	members []gatedMember
}

type gatedMember struct {
	index []int
	name  string
	gate  string // of a field that is dropped
	with  []int  // the field of its value that has to be set
	value string
	quiet bool
	// next is what the value loses, or its items or values, of a field that is not dropped.
	next *gatedNode
}

// Drop removes from an object what it may not have, and returns a text for each field. old
// is the stored object, or nil.
func (g *Gated) Drop(obj, old runtime.Object) []string {
	n := g.of(reflect.TypeOf(obj).Elem())
	if n == nil {
		return nil
	}
	return n.drop(obj, n.inUse(old))
}

// Default returns a function that sets the defaults of objects of a Go type, which is that
// of obj, as next does, but for fields that writes lose. An object that has a feature gets
// the defaults of all fields of it.
func (g *Gated) Default(obj runtime.Object, next func(runtime.Object)) func(runtime.Object) {
	n := g.defaulted.of(reflect.TypeOf(obj).Elem())
	if n == nil {
		return next
	}
	return func(obj runtime.Object) {
		inUse := n.inUse(obj)
		next(obj)
		n.drop(obj, inUse)
	}
}

// inUse returns the gates of the features that an object, or nil, has.
func (n *gatedNode) inUse(obj runtime.Object) map[string]bool {
	inUse := map[string]bool{}
	if obj != nil && !reflect.ValueOf(obj).IsNil() {
		n.visit(reflect.ValueOf(obj).Elem(), func(m *gatedMember, _ reflect.Value) bool {
			inUse[m.gate] = true
			return false
		})
	}
	return inUse
}

// drop removes from an object the fields of features that are not in use, and returns a
// text for each.
func (n *gatedNode) drop(obj runtime.Object, inUse map[string]bool) (dropped []string) {
	n.visit(reflect.ValueOf(obj).Elem(), func(m *gatedMember, v reflect.Value) bool {
		if inUse[m.gate] || m.value != "" && v.Elem().String() == m.value {
			return false
		}
		m.drop(v)
		text := fmt.Sprintf("field %q is dropped: the feature gate %s is off", m.name, m.gate)
		if !m.quiet && !slices.Contains(dropped, text) {
			dropped = append(dropped, text)
		}
		return true
	})
	return dropped
}

func (m *gatedMember) drop(v reflect.Value) {
	if m.value == "" {
		v.SetZero()
		return
	}
	value := reflect.New(v.Type().Elem())
	value.Elem().SetString(m.value)
	v.Set(value)
}

// visit calls do for each gated field of a struct that is set. do reports whether it has
// changed it.
func (n *gatedNode) visit(v reflect.Value, do func(m *gatedMember, v reflect.Value) bool) (changed bool) {
	for i := range n.members {
		m := &n.members[i]
		value := v.FieldByIndex(m.index)
		switch {
		case m.next != nil:
			changed = m.next.each(value, do) || changed
		case value.IsZero() || m.with != nil && isEmpty(value.Elem().FieldByIndex(m.with)):
		default:
			changed = do(m, value) || changed
		}
	}
	return changed
}

// isEmpty reports whether a value is zero, or points to one that is.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Pointer && v.Elem().IsZero()
}

// each visits the structs of the node's type in a value: itself, the items of a list, the
// values of a map.
func (n *gatedNode) each(v reflect.Value, do func(m *gatedMember, v reflect.Value) bool) (changed bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && n.each(v.Elem(), do)
	case reflect.Slice:
		for i := range v.Len() {
			changed = n.each(v.Index(i), do) || changed
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			// Values of maps cannot be changed in place.
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(entries.Value())
			if n.each(value, do) {
				v.SetMapIndex(entries.Key(), value)
				changed = true
			}
		}
	case reflect.Struct:
		return n.visit(v, do)
	}
	return changed
}

// of returns what a kind with a Go type loses.
func (g *Gated) of(t reflect.Type) *gatedNode {
	g.mu.RLock()
	n, known := g.kinds[t]
	g.mu.RUnlock()
	if known {
		return n
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	n, refers := g.build(t, g.off[nameOf(t)+"!"], map[reflect.Type]*gatedNode{})
	if refers && !n.loses(map[*gatedNode]bool{}) {
		n = nil
	}
	g.kinds[t] = n
	return n
}

// loses reports whether a field is dropped from the node's type, or from one inside of it.
// seen are the nodes that have been visited.
func (n *gatedNode) loses(seen map[*gatedNode]bool) bool {
	if n == nil || seen[n] {
		return false
	}
	seen[n] = true
	return slices.ContainsFunc(n.members, func(m gatedMember) bool { return m.next == nil || m.next.loses(seen) })
}

// build returns what a type loses. also are fields that it loses in its place only, and
// open the types that are being built, to which types inside of them may refer, as templates
// have templates: refers reports that. Such a type is not kept.
func (g *Gated) build(t reflect.Type, also []gatedField, open map[reflect.Type]*gatedNode) (n *gatedNode, refers bool) {
	if n, known := g.built[t]; known && also == nil {
		return n, false
	}
	if n, ok := open[t]; ok {
		return n, true
	}
	n = &gatedNode{}
	open[t] = n
	defer delete(open, t)
	off := append(slices.Clone(g.off[nameOf(t)]), also...)
	for _, field := range fieldsOf(t, nil) {
		var inside []gatedField
		dropped := false
		for _, f := range off {
			switch {
			case f.field != field.name:
			case f.inner != "":
				inside = append(inside, gatedField{field: f.inner, with: f.with, value: f.value, gates: f.gates})
			default:
				m := gatedMember{index: field.index, name: field.name, gate: f.gates[0], value: f.value, quiet: f.quiet, with: indexOf(field.of, f.with)}
				n.members = append(n.members, m)
				dropped = dropped || f.with == "" && f.value == ""
			}
		}
		if value, _ := valueOf(field.of); value.Kind() == reflect.Struct && !dropped {
			next, inner := g.build(value, inside, open)
			refers = refers || inner
			if next != nil {
				n.members = append(n.members, gatedMember{index: field.index, next: next})
			}
		}
	}
	if len(n.members) == 0 {
		n = nil
	}
	if also == nil && !refers {
		g.built[t] = n
	}
	return n, refers
}

// nameOf returns the name of a type in the lists: core/v1.PodSpec of k8s.io/api/core/v1.
func nameOf(t reflect.Type) string {
	return strings.TrimPrefix(t.PkgPath(), "k8s.io/api/") + "." + t.Name()
}

// indexOf returns where a field is in the struct to which a type points, or nil without a
// name.
func indexOf(t reflect.Type, name string) []int {
	if name == "" {
		return nil
	}
	for _, field := range fieldsOf(t.Elem(), nil) {
		if field.name == name {
			return field.index
		}
	}
	return nil
}
