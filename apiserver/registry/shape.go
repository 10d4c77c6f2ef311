package registry

import (
	"reflect"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// shape is the layout of a kind's Go type: which of its top-level fields hold
// metadata, status, and everything else.
type shape struct {
	status int // index of the field Status, or -1
	others []int
	names  []string // JSON names of others
}

func shapeOf(obj runtime.Object) shape {
	s := shape{status: -1}
	t := reflect.TypeOf(obj).Elem()
	for i := range t.NumField() {
		switch f := t.Field(i); f.Name {
		case "TypeMeta", "ObjectMeta":
		case "Status":
			s.status = i
		default:
			s.others = append(s.others, i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			s.names = append(s.names, name)
		}
	}
	return s
}

// keepStatus sets the status of obj to that of old; if old is nil, to an empty one.
func (s shape) keepStatus(obj, old runtime.Object) {
	if s.status < 0 {
		return
	}
	field := reflect.ValueOf(obj).Elem().Field(s.status)
	if old == nil {
		field.SetZero()
		return
	}
	field.Set(reflect.ValueOf(old).Elem().Field(s.status))
}

// keepOthers sets every field of obj except metadata and status to that of old.
func (s shape) keepOthers(obj, old runtime.Object) {
	to, from := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	for _, i := range s.others {
		to.Field(i).Set(from.Field(i))
	}
}

// sameOthers reports whether obj and old differ only in metadata and status.
func (s shape) sameOthers(obj, old runtime.Object) bool {
	a, b := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	return !slices.ContainsFunc(s.others, func(i int) bool {
		return !apiequality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface())
	})
}

// exceptStatus returns the paths that a status update ignores.
func (s shape) exceptStatus() []string { return s.names }
