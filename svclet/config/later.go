package config

import (
	"reflect"
	"strings"
)

// checkUnimplemented refuses settings of a file that svclet does not implement yet.
func (f *file) checkUnimplemented() {
	for i := range f.all {
		s := &f.all[i]
		if s.Later == "" || s.Field == "" {
			continue
		}
		value, set := lookUp(f.values, s.Field)
		if !set {
			continue
		}
		// A value of another type has been reported.
		if given, err := decode(value, fieldOf(&Configuration{}, s.Field).Type()); err == nil && !s.isHarmless(given) {
			f.wrong(f.lines[s.Field], "%s: %s; leave it out", s.Field, s.Later)
		}
	}
}

// lookUp returns the value of a field that a file sets.
func lookUp(values map[string]any, path string) (any, bool) {
	first, rest, nested := strings.Cut(path, ".")
	value := values[first]
	if !nested {
		return value, value != nil
	}
	group, _ := value.(map[string]any)
	return lookUp(group, rest)
}

// isHarmless reports whether a value of a setting without an implementation
// requires none: it is empty, or one of Harmless.
func (s *Setting) isHarmless(given reflect.Value) bool {
	if given.IsZero() || (given.Kind() == reflect.Map || given.Kind() == reflect.Slice) && given.Len() == 0 {
		return true
	}
	for _, harmless := range s.Harmless {
		same, err := decodeText(harmless, given.Type())
		if err == nil && reflect.DeepEqual(given.Interface(), same.Interface()) {
			return true
		}
	}
	return false
}
