package config

import (
	"reflect"
	"strings"
)

// checkLater refuses what a file sets of which svclet does nothing yet.
func (f *file) checkLater() {
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

// lookUp finds the value of a field that a file sets.
func lookUp(values map[string]any, path string) (any, bool) {
	first, rest, nested := strings.Cut(path, ".")
	value := values[first]
	if !nested {
		return value, value != nil
	}
	group, _ := value.(map[string]any)
	return lookUp(group, rest)
}

// isHarmless says whether a value of a later setting asks for nothing that
// svclet does not do: it is nothing, one of Harmless, or thresholds that are
// never met.
func (s *Setting) isHarmless(value any) bool {
	field := fieldOf(&Configuration{}, s.Field)
	given, err := decode(value, field.Type())
	if err != nil {
		return true // that it cannot be read has been told
	}
	if given.IsZero() || given.Kind() == reflect.Map && s.neverMet(given) || given.Kind() == reflect.Slice && given.Len() == 0 {
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

// neverMet says that each threshold is 0% or 100%, which is how one turns
// eviction off.
func (s *Setting) neverMet(given reflect.Value) bool {
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
