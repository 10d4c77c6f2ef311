package bodycheck

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
)

// node describes where a Go type holds quantities: it is a quantity itself, or
// its fields or elements hold some. A nil node holds none.
type node struct {
	quantity bool
	fields   map[string]*node
	element  *node
}

// quantityTypes returns a function that returns where the types of the kinds' versions
// hold quantities: nil for one that holds none, and for other resources. A type is read
// with its first request.
func quantityTypes(kinds []*resource.Kind) func(schema.GroupVersionResource) *node {
	types := map[schema.GroupVersionResource]func() *node{}
	for _, kind := range kinds {
		add := func(gvk schema.GroupVersionKind, newObject func() runtime.Object) {
			types[gvk.GroupVersion().WithResource(kind.Name)] = sync.OnceValue(func() *node {
				return nodeOf(reflect.TypeOf(newObject()).Elem(), nil)
			})
		}
		add(kind.Hub, kind.New)
		for _, version := range kind.Versions {
			add(version.GVK, version.New)
		}
	}
	return func(gvr schema.GroupVersionResource) *node {
		if read := types[gvr]; read != nil {
			return read()
		}
		return nil
	}
}

// nodeOf returns the node of a type, or nil if the type holds no quantities. A
// type that contains itself (it is among the enclosing types) ends the descent:
// no type of k8s.io/api with quantities does.
func nodeOf(t reflect.Type, enclosing []reflect.Type) *node {
	for _, a := range enclosing {
		if a == t {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nodeOf(t.Elem(), enclosing)
	case reflect.Slice, reflect.Map:
		if element := nodeOf(t.Elem(), enclosing); element != nil {
			return &node{element: element}
		}
	case reflect.Struct:
		if t == reflect.TypeFor[apiresource.Quantity]() {
			return &node{quantity: true}
		}
		return structNode(t, append(enclosing[:len(enclosing):len(enclosing)], t))
	}
	return nil
}

func structNode(t reflect.Type, enclosing []reflect.Type) *node {
	n := &node{fields: map[string]*node{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		child := nodeOf(f.Type, enclosing)
		switch {
		case child == nil || !f.IsExported():
		case name == "": // embedded: its fields belong to the struct
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

// child returns the node of a field or an element. Decoders match the names of
// fields without regard to case.
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

// at returns the node that a JSON pointer refers to.
func (n *node) at(pointer string) *node {
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		n = n.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return n
}

// check returns an error if value, an object of the type, holds a quantity with
// a huge exponent.
func (n *node) check(value any, path string) error {
	if n == nil {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if err := n.child(name).check(inner, path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for i, inner := range v {
			if err := n.child("").check(inner, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case string:
		if n.quantity && hugeExponent.MatchString(strings.TrimSpace(v)) {
			return exponentError(v, path)
		}
	case json.Number:
		if n.quantity && hugeExponent.MatchString(v.String()) {
			return exponentError(v.String(), path)
		}
	}
	return nil
}
