package resource

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Alike declares that a kind whose hub is *Hub is also served as *Other, a type with
// the same fields. AddToScheme returns an error if they differ.
func Alike[Hub, Other any, PHub object[Hub], POther object[Other]]() Version {
	v := Convert[Hub, Other, PHub, POther](
		func(in *Other, out *Hub) error { CopyFields(in, out); return nil },
		func(in *Hub, out *Other) error { CopyFields(in, out); return nil },
	)
	register := v.register
	v.register = func(s *runtime.Scheme, hub *Kind) error {
		if field := difference(reflect.TypeFor[Hub](), reflect.TypeFor[Other](), map[reflect.Type]bool{}); field != "" {
			return fmt.Errorf("%T and %T differ in %s; convert them with Convert", new(Hub), new(Other), field)
		}
		return register(s, hub)
	}
	return v
}

// Also declares that a kind is served in a further version by the Go type of another
// one, which is declared, too.
func Also[T any, PT object[T]](gv schema.GroupVersion) Version {
	prototype := PT(new(T))
	gvk := gv.WithKind(mustGVK(prototype).Kind)
	return Version{
		GVK:       gvk,
		prototype: prototype,
		register: func(s *runtime.Scheme, _ *Kind) error {
			s.AddKnownTypeWithName(gvk, PT(new(T)))
			list, err := newOf(listGVK(mustGVK(prototype)))
			if err != nil {
				return fmt.Errorf("no list type: %w", err)
			}
			s.AddKnownTypeWithName(listGVK(gvk), list)
			return nil
		},
	}
}

// CopyFields sets the fields of *out that *in has with the same name and shape, at
// every depth; fields that only one of them has stay as they are. The two may share
// memory afterwards.
func CopyFields[In, Out any](in *In, out *Out) {
	assign(reflect.ValueOf(out).Elem(), reflect.ValueOf(in).Elem())
}

func assign(out, in reflect.Value) {
	if out.Type() == in.Type() {
		out.Set(in)
		return
	}
	if out.Kind() != in.Kind() {
		return
	}
	switch in.Kind() {
	case reflect.Struct:
		for i := range in.NumField() {
			if field := out.FieldByName(in.Type().Field(i).Name); field.IsValid() {
				assign(field, in.Field(i))
			}
		}
	case reflect.Pointer:
		if !in.IsNil() {
			out.Set(reflect.New(out.Type().Elem()))
			assign(out.Elem(), in.Elem())
		}
	case reflect.Slice:
		if !in.IsNil() {
			out.Set(reflect.MakeSlice(out.Type(), in.Len(), in.Len()))
			for i := range in.Len() {
				assign(out.Index(i), in.Index(i))
			}
		}
	case reflect.Map:
		if !in.IsNil() {
			out.Set(reflect.MakeMapWithSize(out.Type(), in.Len()))
			for entry := in.MapRange(); entry.Next(); {
				key, value := reflect.New(out.Type().Key()).Elem(), reflect.New(out.Type().Elem()).Elem()
				assign(key, entry.Key())
				assign(value, entry.Value())
				out.SetMapIndex(key, value)
			}
		}
	default:
		if in.CanConvert(out.Type()) {
			out.Set(in.Convert(out.Type()))
		}
	}
}

// difference returns the path of a field in which two types differ, or "".
func difference(a, b reflect.Type, compared map[reflect.Type]bool) string {
	if a == b || compared[a] {
		return ""
	}
	if a.Kind() != b.Kind() {
		return a.String()
	}
	switch a.Kind() {
	case reflect.Struct:
		compared[a] = true
		for _, types := range [][2]reflect.Type{{a, b}, {b, a}} {
			for i := range types[0].NumField() {
				field := types[0].Field(i)
				other, has := types[1].FieldByName(field.Name)
				if !has {
					return types[0].String() + "." + field.Name
				}
				if found := difference(field.Type, other.Type, compared); found != "" {
					return field.Name + ": " + found
				}
			}
		}
		return ""
	case reflect.Pointer, reflect.Slice:
		return difference(a.Elem(), b.Elem(), compared)
	case reflect.Map:
		if found := difference(a.Key(), b.Key(), compared); found != "" {
			return found
		}
		return difference(a.Elem(), b.Elem(), compared)
	}
	return ""
}
