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
		if set && !s.isHarmless(value) {
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
// requires none: it is empty, one of Harmless, or thresholds that are never met.
func (s *Setting) isHarmless(value any) bool {
	field := fieldOf(&Configuration{}, s.Field)
	given, err := decode(value, field.Type())
	if err != nil {
		return true // the problem has been reported
	}
	if given.IsZero() || given.Kind() == reflect.Map && s.disablesEviction(given) || given.Kind() == reflect.Slice && given.Len() == 0 {
		return true
	}
	for _, harmless := range s.Harmless {
		same, err := decodeText(harmless, field.Type())
		if err == nil && reflect.DeepEqual(given.Interface(), same.Interface()) {
			return true
		}
	}
	return false
}

// disablesEviction reports whether each threshold is 0% or 100%, which disables eviction.
func (s *Setting) disablesEviction(given reflect.Value) bool {
	thresholds, ok := given.Interface().(map[string]string)
	if !ok {
		return given.Len() == 0
	}
	for _, threshold := range thresholds {
		if threshold != "0%" && threshold != "100%" {
			return false
		}
	}
	return true
}
