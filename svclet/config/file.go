package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	jsonyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/internal/suggest"
)

// maxFile bounds the size of a configuration file, in bytes.
const maxFile = 1 << 20

// file is one configuration file.
type file struct {
	name string
	// values are its fields, decoded from JSON.
	values map[string]any
	// lines are the lines of fields, by path.
	lines    map[string]int
	all      []Setting
	problems Problems
	found    []finding
}

// finding is a problem in a line of a file.
type finding struct {
	line int
	what string
}

func newFile(name string) *file { return &file{name: name, lines: map[string]int{}, all: All()} }

// readFile reads a configuration file and collects its problems.
func readFile(name string) *file {
	f := newFile(name)
	data, err := readAtMost(name, maxFile)
	switch {
	case err != nil:
		f.problems.add("%s: %v", name, unwrapPath(err))
	case len(data) > maxFile:
		f.problems.add("%s: is larger than 1 MiB, which no configuration is", name)
	default:
		f.parse(data)
	}
	return f
}

func readAtMost(name string, limit int64) ([]byte, error) {
	opened, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(io.LimitReader(opened, limit+1))
}

// unwrapPath removes the file name from an error, because the message names it
// already.
func unwrapPath(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// parse parses YAML or JSON strictly.
func (f *file) parse(data []byte) {
	root, err := oneDocument(data)
	if err != nil {
		f.syntax(err)
		return
	}
	// The values are read as Kubernetes does, as YAML 1.1; the nodes are used for line
	// numbers only.
	asJSON, err := jsonyaml.YAMLToJSON(data)
	if err == nil {
		err = json.Unmarshal(asJSON, &f.values)
	}
	if err != nil {
		f.syntax(err)
		return
	}
	f.group(root, f.values, reflect.TypeFor[Configuration](), "")
	f.checkKind()
	slices.SortStableFunc(f.found, func(a, b finding) int { return a.line - b.line })
	for _, found := range f.found {
		f.problems.add("%s:%d: %s", f.name, found.line, found.what)
	}
	delete(f.values, "apiVersion")
	delete(f.values, "kind")
}

// oneDocument returns the mapping of the only document in data.
func oneDocument(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: it needs at least apiVersion: " + APIVersion + " and kind: " + Kind)
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: holds a second document; leave one", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	root := target(document.Content[0])
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: holds no fields, as apiVersion: %s", root.Line, APIVersion)
	}
	return root, nil
}

// target returns the node, or the one that it is an alias of.
func target(node *yaml.Node) *yaml.Node {
	for range 100 {
		if node.Kind != yaml.AliasNode {
			break
		}
		node = node.Alias
	}
	return node
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\n\s*)?line (\d+): `)

// syntax records a parser's error with its line.
func (f *file) syntax(err error) {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	if at := yamlLine.FindStringSubmatch(message); at != nil {
		f.problems.add("%s:%s: %s", f.name, at[1], strings.TrimPrefix(message, at[0]))
		return
	}
	f.problems.add("%s: %s", f.name, strings.TrimPrefix(message, "yaml: "))
}

func (f *file) wrong(line int, format string, args ...any) {
	f.found = append(f.found, finding{line, fmt.Sprintf(format, args...)})
}

// group checks the fields of a struct, and drops those that are null.
func (f *file) group(node *yaml.Node, values any, t reflect.Type, path string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	group, ok := values.(map[string]any)
	if !ok || node.Kind != yaml.MappingNode {
		f.wrong(node.Line, "%s has fields of its own: %s", path, strings.Join(names(t), ", "))
		return
	}
	known, seen := fields(t), map[string]int{}
	for key, value := range entries(node) {
		name := key.Value
		inner := strings.TrimPrefix(path+"."+name, ".")
		index, found := known[name]
		if before, twice := seen[name]; twice {
			f.wrong(key.Line, "field %q is set twice: in line %d, too", inner, before)
			continue
		}
		seen[name] = key.Line
		if !found {
			f.wrong(key.Line, "unknown field %q%s", inner, f.suggestion(name, path, names(t)))
			continue
		}
		f.lines[inner] = key.Line
		// A null unsets a field. It is kept in the values, because a drop-in unsets what
		// another file sets.
		if group[name] != nil {
			group[name] = f.resolve(group[name], inner)
			f.field(value, group[name], t.FieldByIndex(index).Type, inner)
		}
	}
}

// entries iterates over the keys and values of a mapping, including those that it
// merges ("<<") and does not override.
func entries(mapping *yaml.Node) func(func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		own := map[string]bool{}
		var merged []*yaml.Node
		for i := 0; i+1 < len(mapping.Content); i += 2 {
			key, value := mapping.Content[i], target(mapping.Content[i+1])
			if key.Tag == "!!merge" {
				merged = append(merged, value)
				if value.Kind == yaml.SequenceNode {
					merged = value.Content
				}
				continue
			}
			own[key.Value] = true
			if !yield(key, value) {
				return
			}
		}
		for _, from := range merged {
			from = target(from)
			for i := 0; i+1 < len(from.Content); i += 2 {
				key := from.Content[i]
				if own[key.Value] {
					continue
				}
				own[key.Value] = true
				if !yield(key, target(from.Content[i+1])) {
					return
				}
			}
		}
	}
}

// field checks the value of one field.
func (f *file) field(node *yaml.Node, value any, t reflect.Type, path string) {
	switch {
	case isGroup(t):
		f.group(node, value, t, path)
		return
	case t.Kind() == reflect.Slice && isGroup(t.Elem()):
		list, ok := value.([]any)
		if !ok || node.Kind != yaml.SequenceNode {
			f.wrong(node.Line, "%s is not a list", path)
			return
		}
		before := len(f.found)
		for i := range list {
			f.group(target(node.Content[i]), list[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
		if len(f.found) > before {
			return
		}
	case t.Kind() == reflect.Map && node.Kind == yaml.MappingNode:
		seen := map[string]int{}
		for key := range entries(node) {
			if before, twice := seen[key.Value]; twice {
				f.wrong(key.Line, "field %q is set twice: in line %d, too", path+"."+key.Value, before)
			}
			seen[key.Value] = key.Line
		}
	}
	decoded, err := decode(value, t)
	if err != nil {
		f.wrong(node.Line, "%s: %s is not %s", path, shorten(node, value, path), wanted(t))
		return
	}
	f.rule(decoded, path)
}

// rule checks a value by the rule of its setting. A value that means the default
// is valid.
func (f *file) rule(decoded reflect.Value, path string) {
	s := ofField(f.all, path)
	if s == nil || s.Field != path || isUnset(decoded, path) {
		return
	}
	if problem := s.refuse(decoded); problem != "" {
		f.wrong(f.lines[path], "%s%s", s.title(false), problem)
	}
}

// decode decodes a JSON value into type t.
func decode(value any, t reflect.Type) (reflect.Value, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return reflect.Value{}, err
	}
	return decodeText(string(data), t)
}

// decodeText decodes JSON text into type t.
func decodeText(text string, t reflect.Type) (reflect.Value, error) {
	made := reflect.New(t)
	return made.Elem(), json.Unmarshal([]byte(text), made.Interface())
}

// shorten returns a value as written, for messages. Headers may be secrets, and
// are not shown.
func shorten(node *yaml.Node, value any, path string) string {
	data, err := json.Marshal(value)
	if _, text := value.(string); !text && node.Kind == yaml.ScalarNode {
		data = []byte(strings.ReplaceAll(node.Value, "\n", " "))
	}
	switch {
	case err != nil || path == headersField:
		return "the value"
	case len(data) > 60:
		return string(bytes.ToValidUTF8(data[:57], nil)) + "..."
	}
	return string(data)
}

// wanted returns the kind of value that a type requires in a file.
func wanted(t reflect.Type) string {
	switch (&value{target: reflect.New(t).Elem()}).Type() {
	case "duration":
		return `a duration, as "30s" or "5m"`
	case "quantity":
		return `a quantity, as "64Ki"`
	case "bool":
		return "true or false"
	case "string":
		return "text; put it in quotes"
	case "list":
		return "a list of text"
	case "pairs":
		if t.Elem().Kind() == reflect.Bool {
			return "names, each with true or false"
		}
		return "names, each with a text; put numbers in quotes"
	case "headers":
		return "names, each with a list of text"
	case "float64":
		return "a number"
	}
	return "a whole number"
}

// names returns the names of a struct's fields in files.
func names(t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var all []string
	for name := range sorted(fields(t)) {
		all = append(all, name)
	}
	return all
}

// suggestion suggests a field for an unknown one.
func (f *file) suggestion(name, path string, here []string) string {
	if similar := suggest.Closest(name, here); similar != "" {
		return fmt.Sprintf("; did you mean %q?", similar)
	}
	if s := ofFlag(f.all, name); s != nil && s.Field != "" {
		return fmt.Sprintf("; the field of --%s is %q", name, s.Field)
	}
	for i := range f.all {
		// A nested field.
		if before, _, ok := strings.Cut("."+f.all[i].Field+".", "."+name+"."); ok && before != "" && path == "" {
			return fmt.Sprintf("; did you mean %q?", before[1:]+"."+name)
		}
	}
	return ""
}

// checkKind refuses files of another kind.
func (f *file) checkKind() {
	apiVersion, _ := f.values["apiVersion"].(string)
	kind, _ := f.values["kind"].(string)
	pair := [2]string{apiVersion, kind}
	if slices.Contains([][2]string{{APIVersion, Kind}, {kubeletAPIVersion, kubeletKind}}, pair) {
		return
	}
	f.wrong(max(f.lines["kind"], 1), "apiVersion %q, kind %q is not supported: must be apiVersion: %s and kind: %s", apiVersion, kind, APIVersion, Kind)
}

// pathFields are those whose relative paths are relative to the directory of their
// file.
func pathFields() []string {
	return []string{"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf", "volumePluginDir", "podLogsDir"}
}

// resolve makes a path absolute; other values are returned unchanged.
func (f *file) resolve(value any, field string) any {
	path, ok := value.(string)
	if !ok || path == "" || filepath.IsAbs(path) || !slices.Contains(pathFields(), field) {
		return value
	}
	absolute, err := filepath.Abs(filepath.Join(filepath.Dir(f.name), path))
	if err != nil {
		return value // there is no working directory
	}
	return absolute
}
