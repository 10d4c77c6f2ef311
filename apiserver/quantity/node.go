package quantity

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// node is a Go type, reduced to where it holds quantities: it is one, or its
// fields, or its elements, hold some. A nil node holds none.
type node struct {
	quantity bool
	fields   map[string]*node
	element  *node
}

// typesWithQuantities are the types of the kinds' versions that hold any.
func typesWithQuantities(kinds []*resource.Kind) map[schema.GroupVersionResource]*node {
	found := map[schema.GroupVersionResource]*node{}
	for _, kind := range kinds {
		add := func(gvk schema.GroupVersionKind, obj any) {
			if n := nodeOf(reflect.TypeOf(obj).Elem(), nil); n != nil {
				found[gvk.GroupVersion().WithResource(kind.Name)] = n
			}
		}
		add(kind.Hub, kind.New())
		for _, version := range kind.Versions {
			add(version.GVK, version.New())
		}
	}
	return found
}

// nodeOf reduces a type. A type within itself (above) is cut off: no type of
// k8s.io/api contains itself.
func nodeOf(t reflect.Type, above []reflect.Type) *node {
	for _, a := range above {
		if a == t {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nodeOf(t.Elem(), above)
	case reflect.Slice, reflect.Map:
		if element := nodeOf(t.Elem(), above); element != nil {
			return &node{element: element}
		}
	case reflect.Struct:
		if t == reflect.TypeFor[apiresource.Quantity]() {
			return &node{quantity: true}
		}
		return structNode(t, append(above[:len(above):len(above)], t))
	}
	return nil
}

func structNode(t reflect.Type, above []reflect.Type) *node {
	n := &node{fields: map[string]*node{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		child := nodeOf(f.Type, above)
		switch {
		case child == nil || !f.IsExported():
		case name == "": // embedded: its fields are the struct's own
			for inner, grandchild := range child.fields {
				n.fields[inner] = grandchild
			}
		default:
			n.fields[name] = child
		}
	}
	if len(n.fields) == 0 {
		return nil
	}
	return n
}

// child is the node of a field or an element. Decoders match fields without
// regard to case.
func (n *node) child(name string) *node {
	switch {
	case n == nil:
		return nil
	case n.element != nil:
		return n.element
	}
	if f := n.fields[name]; f != nil {
		return f
	}
	for field, f := range n.fields {
		if strings.EqualFold(field, name) {
			return f
		}
	}
	return nil
}

// at is the node that a JSON pointer leads to.
func (n *node) at(pointer string) *node {
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		n = n.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return n
}

// judge compares a value of the type with enormous.
func (n *node) judge(value any, path string) error {
	if n == nil {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if err := n.child(name).judge(inner, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for i, inner := range v {
			if err := n.child("").judge(inner, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case string:
		if n.quantity && enormous.MatchString(strings.TrimSpace(v)) {
			return refusal(v, path)
		}
	case json.Number:
		if n.quantity && enormous.MatchString(v.String()) {
			return refusal(v.String(), path)
		}
	}
	return nil
}
