package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// merged is the result of all files, with the origins of fields.
type merged struct {
	values   map[string]any
	origins  map[string]string // by path: "/etc/svclet.yaml:12"
	problems Problems
}

// readFiles reads the configuration file and the drop-ins, of which later ones
// override earlier ones: fields and maps are merged, lists and everything else
// replaced (RFC 7396). named is the setting that names the directory.
func readFiles(config, directory, named string) *merged {
	m := &merged{values: map[string]any{}, origins: map[string]string{}}
	var paths []string
	if config != "" {
		if _, err := os.Stat(config); err != nil {
			m.problems.add("--config: %s: %v", config, unwrapPath(err))
		} else {
			paths = append(paths, config)
		}
	}
	if directory != "" {
		dropIns, err := dropIns(directory)
		if err != nil {
			m.problems.add("%s: %s: %v", named, directory, unwrapPath(err))
		}
		paths = append(paths, dropIns...)
	}
	for _, path := range paths {
		m.add(readFile(path))
	}
	return m
}

// dropIns returns the files named *.conf in a directory and below it, in lexical
// order.
func dropIns(directory string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// add merges a file.
func (m *merged) add(f *file) {
	m.problems = append(m.problems, f.problems...)
	if len(f.problems) > 0 {
		return
	}
	m.override(m.values, f.values, f, "")
}

func (m *merged) override(into, from map[string]any, f *file, path string) {
	for name, value := range sorted(from) {
		inner := strings.TrimPrefix(path+"."+name, ".")
		if group, ok := value.(map[string]any); ok {
			old, ok := into[name].(map[string]any)
			if !ok {
				old = map[string]any{}
				into[name] = old
			}
			m.note(f, inner)
			m.override(old, group, f, inner)
			continue
		}
		if value == nil {
			delete(into, name)
			m.forget(inner)
			continue
		}
		into[name] = value
		m.note(f, inner)
	}
}

// note records the origin of a field.
func (m *merged) note(f *file, path string) {
	if line := f.lines[path]; line > 0 {
		m.origins[path] = fmt.Sprintf("%s:%d", f.name, line)
	}
}

func (m *merged) forget(path string) {
	for other := range m.origins {
		if within(other, path) {
			delete(m.origins, other)
		}
	}
}

// isUnset reports whether a field is treated as missing: as in kubelet, a
// zero that cannot be distinguished from a missing value. The read-only port, for
// which 0 is a value, is not such a field.
func isUnset(decoded reflect.Value, path string) bool {
	return decoded.IsZero() && decoded.Kind() != reflect.Bool && path != "readOnlyPort"
}

// apply sets the merged fields in c.
func (m *merged) apply(c *Configuration) {
	m.applyGroup(c, m.values, "")
}

func (m *merged) applyGroup(c *Configuration, values map[string]any, path string) {
	for name, value := range sorted(values) {
		inner := strings.TrimPrefix(path+"."+name, ".")
		field := fieldOf(c, inner)
		if group, ok := value.(map[string]any); ok && isGroup(field.Type()) {
			m.applyGroup(c, group, inner)
			continue
		}
		decoded, err := decode(value, field.Type())
		if err != nil {
			// The value was decoded before, when its file was read.
			m.problems.add("%s: %s: %v", m.origins[inner], inner, err)
			continue
		}
		if isUnset(decoded, inner) {
			delete(m.origins, inner)
			continue
		}
		field.Set(decoded)
	}
}
