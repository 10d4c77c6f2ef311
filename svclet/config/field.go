package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// fieldOf is the field of c that a path names.
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

// named is the field of a struct, or of one that is embedded in it, that has
// this name in files.
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

// fields are where the fields of a struct are, by the names that they have in
// files. Those of embedded structs are its own.
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

// isGroup says whether values of a type consist of fields that are named one by
// one.
func isGroup(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// plain is a value as rules see it: a pointer's target, durations, all whole
// numbers as int64, all text as string. It is nil if there is none.
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
