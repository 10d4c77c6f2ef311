package fields

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// prune removes the fields that the release lacks from a struct of the node's type, except
// those to keep, and returns a text for each. A field with the zero value of its type is
// absent.
func (n *Node) prune(v reflect.Value, at *path, keep func(at *path, value any) bool) []string {
	var found []string
	for i := range n.members {
		m := &n.members[i]
		value, to := v.FieldByIndex(m.index), &path{parent: at, name: m.name}
		switch {
		case m.missing && !value.IsZero() && !keep(to, value.Interface()):
			value.SetZero()
			found = append(found, unknown(to))
		case m.inner != nil:
			m.inner.each(value, to, func(inner reflect.Value, at *path) (changed bool) {
				cut := m.inner.prune(inner, at, keep)
				found = append(found, cut...)
				return len(cut) > 0
			})
		}
	}
	return found
}

func keepNone(*path, any) bool { return false }

// Fits reports whether an object has the node's type.
func (n *Node) Fits(obj runtime.Object) bool {
	return n != nil && reflect.TypeOf(obj) == reflect.PointerTo(n.of)
}

// Values returns the fields of an object of the node's type that the release lacks, by
// path, such as spec.containers[0].image. A field with the zero value is absent.
func (n *Node) Values(obj runtime.Object) map[string]any {
	values := map[string]any{}
	if n != nil {
		n.values(reflect.ValueOf(obj).Elem(), nil, values)
	}
	return values
}

func (n *Node) values(v reflect.Value, at *path, values map[string]any) {
	for i := range n.members {
		m := &n.members[i]
		value, to := v.FieldByIndex(m.index), &path{parent: at, name: m.name}
		switch {
		case m.missing && !value.IsZero():
			values[to.String()] = value.Interface()
		case m.inner != nil:
			m.inner.each(value, to, func(inner reflect.Value, at *path) (changed bool) {
				m.inner.values(inner, at, values)
				return false
			})
		}
	}
}

// Remove removes the fields that the release lacks from an object of the node's type.
func (n *Node) Remove(obj runtime.Object) {
	if n != nil {
		n.prune(reflect.ValueOf(obj).Elem(), nil, keepNone)
	}
}

// newValues adds an error for each value of an enumeration that the release lacks.
func (n *Node) newValues(v reflect.Value, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range n.members {
		m := &n.members[i]
		value := v.FieldByIndex(m.index)
		switch {
		case m.values != nil:
			errs = append(errs, m.unsupported(value, at.Child(m.name))...)
		case m.inner != nil:
			m.inner.each(value, nil, func(inner reflect.Value, to *path) (changed bool) {
				errs = append(errs, m.inner.newValues(inner, to.below(at.Child(m.name)))...)
				return false
			})
		}
	}
	return errs
}

// unsupported returns errors for values that are not the enumeration's in the release.
func (m *member) unsupported(v reflect.Value, at *field.Path) field.ErrorList {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return m.unsupported(v.Elem(), at)
		}
	case reflect.Slice:
		var errs field.ErrorList
		for i := range v.Len() {
			errs = append(errs, m.unsupported(v.Index(i), at.Index(i))...)
		}
		return errs
	case reflect.Map:
		var errs field.ErrorList
		for entries := v.MapRange(); entries.Next(); {
			errs = append(errs, m.unsupported(entries.Value(), at.Key(entries.Key().String()))...)
		}
		return errs
	case reflect.String:
		if !v.IsZero() && !slices.Contains(m.values, v.String()) {
			return field.ErrorList{field.NotSupported(at, v.String(), m.values)}
		}
	}
	return nil
}

// each calls do for the structs of the node's type in a value: itself, the items of a
// list, the values of a map. It reports whether one of them, as do reports, has changed.
func (n *Node) each(v reflect.Value, at *path, do func(inner reflect.Value, at *path) bool) (changed bool) {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && n.each(v.Elem(), at, do)
	case reflect.Slice:
		for i := range v.Len() {
			changed = n.each(v.Index(i), &path{parent: at, index: i}, do) || changed
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			// Values of maps cannot be changed in place.
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(entries.Value())
			if n.each(value, &path{parent: at, name: entries.Key().String()}, do) {
				v.SetMapIndex(entries.Key(), value)
				changed = true
			}
		}
	case reflect.Struct:
		if v.Type() == n.of {
			return do(v, at)
		}
		for i := range v.NumField() { // one of several alternatives
			if inner, _ := valueOf(v.Type().Field(i).Type); inner == n.of {
				changed = n.each(v.Field(i), at, do) || changed
			}
		}
	}
	return changed
}

// below returns the path below another one.
func (p *path) below(of *field.Path) *field.Path {
	switch {
	case p == nil:
		return of
	case p.name == "":
		return p.parent.below(of).Index(p.index)
	}
	return p.parent.below(of).Key(p.name)
}
