// Package validation compares what svc and the real kube-apiserver answer to
// objects with one invalid or unusual field, for every field of every kind.
package validation

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Case is a base object with one field changed.
type Case struct {
	// Path names the changed field, with the number of each list element, and
	// Steps are its names and numbers.
	Path  string
	Steps []any
	// Value is the field's new value, or nil where the field is removed.
	Value  any
	Object map[string]any
}

// Limits of the walk: the types of JSON schemas and selectors contain themselves,
// and the fields of a pod are tried on pods rather than on each kind with a template.
const (
	maxDepth         = 12
	maxTemplateDepth = 2
)

// Cases returns the cases of a base object of a Go type. Fields that the base
// does not have are tried on the empty structs and single list elements that
// contain them.
func Cases(base map[string]any, t reflect.Type) []Case {
	w := &walk{base: base}
	w.structFields(t, nil, maxDepth)
	return w.cases
}

type walk struct {
	base  map[string]any
	cases []Case
	stack []reflect.Type
	// unions are those that contain the current field.
	unions []union
}

// union is a struct, at a path, of whose members an object has at most one.
type union struct {
	path    []any
	members []string
}

// unions are the Go types of unions. A case of a member leaves out the base's.
var unions = []reflect.Type{
	reflect.TypeFor[corev1.VolumeSource](), reflect.TypeFor[corev1.PersistentVolumeSource](), reflect.TypeFor[corev1.VolumeProjection](),
	reflect.TypeFor[corev1.ProbeHandler](), reflect.TypeFor[corev1.LifecycleHandler](), reflect.TypeFor[corev1.EnvVarSource](),
	reflect.TypeFor[networkingv1.IngressBackend](), reflect.TypeFor[networkingv1.NetworkPolicyPeer](), reflect.TypeFor[storagev1.VolumeAttachmentSource](),
}

// structFields adds the cases of the fields of a struct at a path.
func (w *walk) structFields(t reflect.Type, path []any, depth int) {
	if depth == 0 || w.inside(t) {
		return
	}
	w.stack = append(w.stack, t)
	defer func() { w.stack = w.stack[:len(w.stack)-1] }()
	if slices.Contains(unions, t) {
		w.unions = append(w.unions, union{path, members(t)})
		defer func() { w.unions = w.unions[:len(w.unions)-1] }()
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta](), name == "-", name == "managedFields", !f.IsExported():
		case name == "": // an embedded struct
			w.structFields(f.Type, path, depth)
		default:
			below := depth - 1
			if f.Type == reflect.TypeFor[corev1.PodTemplateSpec]() || f.Type == reflect.TypeFor[*corev1.PodTemplateSpec]() {
				below = min(below, maxTemplateDepth)
			}
			w.field(f.Type, append(path[:len(path):len(path)], name), below)
		}
	}
}

// members returns the names of the fields of a struct.
func members(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func (w *walk) inside(t reflect.Type) bool {
	for _, outer := range w.stack {
		if outer == t {
			return true
		}
	}
	return false
}

// field adds the cases of one value, and of those that it contains.
func (w *walk) field(t reflect.Type, path []any, depth int) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	w.add(path, nil)
	for _, value := range Values(t) {
		w.add(path, value)
	}
	if scalar(t) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		w.structFields(t, path, depth)
	case reflect.Slice:
		if list, ok := lookup(w.base, path).([]any); ok && len(list) > 0 {
			w.add(path, append(list[:len(list):len(list)], list[0])) // a duplicate
		}
		w.field(t.Elem(), append(path[:len(path):len(path)], 0), depth)
	default:
	}
}

func (w *walk) add(path []any, value any) {
	object := runtime.DeepCopyJSON(w.base)
	if !set(object, path, value) {
		return
	}
	if value != nil {
		w.leaveOutOthers(object, path)
	}
	w.cases = append(w.cases, Case{Path: Join(path), Steps: path, Value: value, Object: object})
}

// leaveOutOthers removes the members of unions that the path does not lead to.
func (w *walk) leaveOutOthers(object map[string]any, path []any) {
	for _, u := range w.unions {
		for _, name := range u.members {
			if other := append(u.path[:len(u.path):len(u.path)], name); name != path[len(u.path)] && lookup(object, other) != nil {
				put(object, other, nil)
			}
		}
	}
}

// scalar reports whether the JSON form of a struct or slice is one value.
func scalar(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) ||
		t == reflect.TypeFor[[]byte]()
}

// Values returns the values that a field of a Go type is given: empty, zero,
// negative, too large, too long, and of a form that no field has.
func Values(t reflect.Type) []any {
	long := strings.Repeat("a", 300)
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return []any{"0", "-1", "1", "1.5m", "1Gi"}
	case reflect.TypeFor[intstr.IntOrString]():
		return []any{int64(0), int64(-1), int64(70000), "", "50%", "150%", "-1%", "not valid", long}
	case reflect.TypeFor[metav1.Duration]():
		return []any{"0s", "-1s", "1h"}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return []any{"2026-01-02T03:04:05Z"}
	case reflect.TypeFor[runtime.RawExtension]():
		return []any{map[string]any{}, map[string]any{"a": "b"}}
	case reflect.TypeFor[[]byte]():
		return []any{"", "Yg=="}
	}
	switch t.Kind() {
	case reflect.String:
		return []any{"", "a", "Not valid!", "example.com/a", "192.0.2.1", "-1", long}
	case reflect.Bool:
		return []any{true, false}
	case reflect.Int32, reflect.Int64, reflect.Int:
		return []any{int64(0), int64(-1), int64(1), int64(70000), int64(math.MaxInt32)}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return []any{[]any{}, []any{map[string]any{}}}
		}
		return []any{[]any{}}
	case reflect.Struct:
		return []any{map[string]any{}}
	case reflect.Map:
		return mapValues(t.Elem(), long)
	default:
		return nil
	}
}

func mapValues(element reflect.Type, long string) []any {
	all := []any{map[string]any{}}
	for _, value := range Values(element) {
		all = append(all, map[string]any{"a": value})
	}
	if values := Values(element); len(values) > 1 {
		for _, key := range []string{"", "Not valid!", "example.com/a", long} {
			all = append(all, map[string]any{key: values[1]})
		}
	}
	return all
}

// lookup returns the value at a path, or nil.
func lookup(value any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// set sets the value at a path, or removes it for nil. It creates what contains
// it, and reports whether the object has changed.
func set(object map[string]any, path []any, value any) bool {
	if old := lookup(object, path); reflect.DeepEqual(old, value) {
		return false
	}
	if _, inList := path[len(path)-1].(int); inList && value == nil {
		return false
	}
	put(object, path, value)
	return true
}

func put(container any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0].(type) {
	case string:
		object, ok := container.(map[string]any)
		if !ok {
			object = map[string]any{}
		}
		if len(path) == 1 && value == nil {
			delete(object, step)
		} else {
			object[step] = put(object[step], path[1:], value)
		}
		return object
	case int:
		list, _ := container.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[step] = put(list[step], path[1:], value)
		return list
	}
	return container
}

// Join writes a path as field paths are written in errors.
func Join(path []any) string {
	var text strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&text, "[%d]", step)
		default:
			if text.Len() > 0 {
				text.WriteString(".")
			}
			fmt.Fprint(&text, step)
		}
	}
	return text.String()
}
