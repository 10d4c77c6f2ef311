// Package configlines owns the lines of the fields of configuration files: the decoders
// and validations of Kubernetes' configurations name a field, and not its line.
package configlines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is a configuration file of one document, in YAML or JSON.
type File struct{ root *yaml.Node }

// Parse reads a file. It returns an error if the file is empty, no YAML, or has a second
// document, which the decoders of configurations would not read.
func Parse(content []byte) (*File, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty: it needs at least an apiVersion and a kind")
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: holds a second document: leave one", second.Line)
	}
	var values any // It refuses aliases that contain themselves, or make too many values.
	if err := document.Decode(&values); err != nil {
		return nil, err
	}
	return &File{document.Content[0]}, nil
}

var step = regexp.MustCompile(`[^.\[\]]+`)

// Line returns the line of a field, such as a.list[0].name, or of the nearest one above
// that is there.
func (f *File) Line(path string) int {
	line, _ := f.find(path)
	return line
}

// Part returns the value of a field as if it were a file, with the lines of the file. It
// reports whether the field is there.
func (f *File) Part(path string) (*File, bool) {
	node := f.root
	for _, name := range step.FindAllString(path, -1) {
		if node, _ = child(node, name); node == nil {
			return nil, false
		}
	}
	return &File{target(node)}, true
}

// find returns the line of a field, or of the nearest one above that is there, and how
// many steps of the path lead to it.
func (f *File) find(path string) (line, depth int) {
	node, line := f.root, f.root.Line
	for _, name := range step.FindAllString(path, -1) {
		next, at := child(node, name)
		if next == nil {
			return line, depth
		}
		node, line, depth = next, at, depth+1
	}
	return line, depth
}

// child returns the value of a field of a mapping, or an item of a sequence, and its line.
// It is nil if there is none.
func child(node *yaml.Node, name string) (value *yaml.Node, line int) {
	node = target(node)
	switch i, err := strconv.Atoi(name); {
	case node.Kind == yaml.SequenceNode && err == nil && i >= 0 && i < len(node.Content):
		return node.Content[i], node.Content[i].Line
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, 0
}

// target returns the node, or the one that it is an alias of.
func target(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

var (
	// named is a field as validations name it, at the beginning of an error.
	named = regexp.MustCompile(`\b([a-zA-Z]\w*(?:\.\w+|\[\d+\])*): (Required|Invalid|Unsupported|Duplicate|Forbidden|Not found|Too )?`)
	// quoted is a field as strict decoders name it.
	quoted = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	// mistyped is a field as encoding/json names it if its value has another type. Items
	// of lists have no index.
	mistyped = regexp.MustCompile(`json: cannot unmarshal (\w+)(?: -?[\d.e+-]+)? into Go struct field [^.\s]+\.(\S+) of type`)
)

// Explain returns an error in one line that says what err says, with the line before each
// field of the file that err names: "line 3: users[0].name: Required value".
func Explain(content []byte, err error) error {
	f, unreadable := Parse(content)
	if unreadable != nil {
		return err // It says so itself.
	}
	return f.Explain(err)
}

// Explain is the function of this name for a file that is parsed.
func (f *File) Explain(err error) error {
	if err == nil {
		return nil
	}
	return &explained{f.annotate(strings.Join(strings.Fields(err.Error()), " ")), err}
}

// explained is an error with another text.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

func (f *File) annotate(text string) string {
	text = named.ReplaceAllStringFunc(text, func(match string) string {
		parts := named.FindStringSubmatch(match)
		line, depth := f.find(parts[1])
		absent := depth < len(step.FindAllString(parts[1], -1))
		if depth == 0 || absent && parts[2] == "" {
			return match // It names no field.
		}
		return fmt.Sprintf("line %d: %s", line, match)
	})
	text = quoted.ReplaceAllStringFunc(text, func(match string) string {
		path := quoted.FindStringSubmatch(match)[1]
		line, depth := f.find(path)
		if depth == 0 {
			line = keyLine(f.root, path) // Some decoders name the field without its path.
		}
		if line == 0 {
			return match
		}
		return fmt.Sprintf("line %d: %s", line, match)
	})
	return mistyped.ReplaceAllStringFunc(text, func(match string) string {
		parts := mistyped.FindStringSubmatch(match)
		if line := mistypedLine(f.root, strings.Split(parts[2], "."), parts[1]); line > 0 {
			return fmt.Sprintf("line %d: %s", line, match)
		}
		return match
	})
}

// keyLine returns the line of the first field of a name, at any depth, or 0.
func keyLine(node *yaml.Node, name string) int {
	for i, content := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && content.Value == name {
			return content.Line
		}
		if line := keyLine(content, name); line > 0 {
			return line
		}
	}
	return 0
}

// mistypedLine returns the line of the first field of a path, in any item of the lists on
// the way, whose value has a JSON type. It is 0 if there is none.
func mistypedLine(node *yaml.Node, path []string, jsonType string) int {
	node = target(node)
	if node.Kind == yaml.SequenceNode && !(len(path) == 0 && jsonType == "array") {
		for _, item := range node.Content {
			if line := mistypedLine(item, path, jsonType); line > 0 {
				return line
			}
		}
		return 0
	}
	if len(path) == 0 {
		if typeOf(node) == jsonType {
			return node.Line
		}
		return 0
	}
	if value, _ := child(node, path[0]); value != nil {
		return mistypedLine(value, path[1:], jsonType)
	}
	return 0
}

// typeOf returns the name of encoding/json for the type of a value.
func typeOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "array"
	}
	switch node.ShortTag() {
	case "!!int", "!!float":
		return "number"
	case "!!bool":
		return "bool"
	}
	return "string"
}
