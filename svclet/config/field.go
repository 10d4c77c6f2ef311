package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// fieldOf returns the field of c with this path.
func fieldOf(c *Configuration, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if v = named(v, name); !v.IsValid() {
			break
		}
	}
	return v
}

// named returns the field of a struct, or of an embedded one, with this name in
// files.
func named(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch own, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case own == name:
			return v.Field(i)
		case own == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			if inner := named(v.Field(i), name); inner.IsValid() {
				return inner
			}
		}
	}
	return reflect.Value{}
}

// fields returns the indexes of a struct's fields by their names in files,
// including those of embedded structs.
func fields(t reflect.Type) map[string][]int {
	all := map[string][]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			for inner, index := range fields(f.Type) {
				all[inner] = append([]int{i}, index...)
			}
		case name != "":
			all[name] = []int{i}
		}
	}
	return all
}

// isGroup reports whether values of a type consist of named fields.
func isGroup(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// plain returns a value in the form that rules check: a pointer's target,
// durations, all integers as int64, all text as string. It returns nil if there is
// none.
func plain(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case metav1.Duration:
		return value.Duration
	case logsapi.TimeOrMetaDuration:
		return value.Duration.Duration
	case time.Duration:
		return value
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint32:
		return int64(v.Uint())
	case reflect.String:
		return v.String()
	}
	return v.Interface()
}
