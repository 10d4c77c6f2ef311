package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is a document of a file: an object, a List of objects, or something else.
type Document struct {
	File string
	// Line is that of its text in the file, from 1.
	Line int
	// Text is what the file has, its separator included.
	Text string
	// Root is the content, with aliases and merge keys replaced by what they refer to;
	// nil if there is none but comments.
	Root *yaml.Node
	// JSON reports whether the text is JSON.
	JSON bool

	lists []typedList
	// spans are where the values of JSON are in its text.
	spans map[*yaml.Node]span
}

// typedList is a list of objects of one kind, such as an IngressList.
type typedList struct {
	node *yaml.Node
	// items are its objects; added are those that Objects has given an apiVersion and a kind.
	items, added []*yaml.Node
}

// Error is a mistake in a file.
type Error struct {
	File string
	Line int
	// Template reports whether the text has actions of a template language.
	Template bool
	Err      error
}

// Error returns the error after FILE:LINE, and the remedy for a template.
func (e *Error) Error() string {
	if e.Template {
		return fmt.Sprintf("%s:%d: %v: the file is a template: render it first, as with \"helm template\"", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Parse splits a file into its documents. The texts of these, joined, are the file's. The
// error joins that of each invalid document; the others are returned with it.
func Parse(file, text string) ([]*Document, error) {
	var documents []*Document
	var mistakes []error
	for d, err := range Documents(file, text) {
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		documents = append(documents, d)
	}
	return documents, errors.Join(mistakes...)
}

// Documents is Parse for a file of which not all documents are to be in memory at once. Each
// is parsed when it is asked for; for an invalid one there is an error in its place.
func Documents(file, text string) iter.Seq2[*Document, error] {
	return func(yield func(*Document, error) bool) {
		if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			yield(nil, &Error{File: file, Line: 1, Err: errors.New("the file is in UTF-16: save it in UTF-8")})
			return
		}
		content := strings.TrimPrefix(text, byteOrderMark)
		mark := text[:len(text)-len(content)]
		parts, err := splitJSON(content)
		isJSON := err == nil
		if !isJSON {
			if strings.HasSuffix(file, ".json") {
				yield(nil, jsonMistake(file, content, err))
				return
			}
			parts = split(content)
		}
		line := 1
		for _, part := range parts {
			d := &Document{File: file, Line: line, Text: part, JSON: isJSON}
			line += strings.Count(part, "\n")
			if err := d.parse(); err != nil {
				if !yield(nil, err) {
					return
				}
				continue
			}
			d.Text, mark = mark+d.Text, ""
			if !yield(d, nil) {
				return
			}
		}
	}
}

// byteOrderMark is what some editors begin a file with.
const byteOrderMark = "\ufeff"

// splitJSON cuts a stream of JSON objects after each of them.
func splitJSON(text string) ([]string, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	var parts []string
	start := 0
	for {
		var object map[string]json.RawMessage
		switch err := decoder.Decode(&object); {
		case err == nil && object != nil:
			end := int(decoder.InputOffset())
			parts, start = append(parts, text[start:end]), end
		case errors.Is(err, io.EOF) && len(parts) > 0:
			parts[len(parts)-1] += text[start:]
			return parts, nil
		default:
			return nil, err
		}
	}
}

// jsonMistake returns an error with the line of a mistake in JSON.
func jsonMistake(file, text string, err error) error {
	var syntax *json.SyntaxError
	line := 1
	if errors.As(err, &syntax) {
		line += strings.Count(text[:min(int(syntax.Offset), len(text))], "\n")
	}
	return &Error{File: file, Line: line, Err: fmt.Errorf("invalid JSON: %w", err)}
}

// split cuts a stream before each line that begins a document: a separator or, after the
// end of another document, directives.
func split(text string) []string {
	var parts []string
	start, at := 0, 0
	ended, directives := true, false // of the current document
	for line := range strings.Lines(text) {
		begins := isSeparator(line) && !directives
		switch {
		case isSeparator(line):
			ended, directives = false, false
		case ended && line[0] == '%':
			begins, directives = !directives, true
		case isEnd(line):
			ended = true
		case !isComment(line):
			ended = false
		}
		if at > start && begins {
			parts = append(parts, text[start:at])
			start = at
		}
		at += len(line)
	}
	return append(parts, text[start:])
}

func isEnd(line string) bool {
	rest, found := strings.CutPrefix(line, "...")
	return found && (strings.TrimSpace(rest) == "" || rest[0] == ' ' || rest[0] == '\t')
}

func isComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

func isSeparator(line string) bool {
	rest, found := strings.CutPrefix(line, "---")
	return found && (strings.TrimSpace(rest) == "" || rest[0] == ' ' || rest[0] == '\t')
}

// parse reads Text into Root.
func (d *Document) parse() error {
	if d.JSON {
		return d.parseJSON()
	}
	decoder := yaml.NewDecoder(strings.NewReader(d.source()))
	var root yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return d.mistake(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("a second document begins without a line ---")
		}
		return d.mistake(err)
	}
	content := root.Content[0]
	// A comment before the first key belongs to the document's node.
	if content.HeadComment == "" {
		content.HeadComment = root.HeadComment
	}
	if content.Kind == yaml.ScalarNode && content.Tag == "!!null" {
		return nil
	}
	budget := maxNodes
	if err := expand(content, 0, &budget); err != nil {
		return d.mistake(err)
	}
	d.Root = content
	return nil
}

// source returns Text as it is parsed: without the byte order mark, and with a directive
// of YAML's version as a comment, as the parser takes only 1.1.
func (d *Document) source() string {
	text := strings.TrimPrefix(d.Text, byteOrderMark)
	var at int
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "%YAML ") {
			text = text[:at] + "#" + text[at+1:]
		} else if !isComment(line) && line[0] != '%' {
			break
		}
		at += len(line)
	}
	return text
}

var lineOf = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)`)

// mistake returns an error with the line in the file.
func (d *Document) mistake(err error) error {
	parts := lineOf.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
	line := 1
	if n, convErr := strconv.Atoi(parts[1]); convErr == nil {
		line = n
	}
	return &Error{File: d.File, Line: d.Line + line - 1, Template: strings.Contains(d.Text, "{{"), Err: errors.New("invalid YAML: " + parts[2])}
}

// maxDepth bounds how deeply a document is nested.
const maxDepth = 200

// maxNodes bounds what the aliases of a document expand to: one within itself has no end.
const maxNodes = 1 << 18

// expand replaces aliases and merge keys below a node. The budget is the number of nodes
// that these may add.
func expand(n *yaml.Node, depth int, budget *int) error {
	if depth > maxDepth || *budget < 0 {
		return errors.New("the document is nested too deeply, or its aliases expand to too much or refer to themselves")
	}
	n.Anchor = ""
	if n.Kind == yaml.MappingNode {
		if err := merge(n, budget); err != nil {
			return err
		}
	}
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			child = copyOf(child.Alias, budget)
			n.Content[i] = child
		}
		if err := expand(child, depth+1, budget); err != nil {
			return err
		}
	}
	return nil
}

// copyOf returns a deep copy as far as the budget goes.
func copyOf(n *yaml.Node, budget *int) *yaml.Node {
	if *budget--; *budget < 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"} // expand returns an error
	}
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i := range n.Content {
		c.Content[i] = copyOf(n.Content[i], budget)
	}
	return &c
}

// merge replaces the merge keys of a mapping by the entries that they refer to.
func merge(m *yaml.Node, budget *int) error {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Tag != "!!merge" {
			continue
		}
		from := m.Content[i+1]
		sources := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			sources = from.Content
		}
		m.Content = append(m.Content[:i:i], m.Content[i+2:]...)
		for _, source := range sources {
			if source.Kind == yaml.AliasNode {
				source = source.Alias
			}
			if source.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: a merge key refers to something else than a mapping", from.Line)
			}
			for j := 0; j+1 < len(source.Content); j += 2 {
				if Get(m, source.Content[j].Value) == nil {
					m.Content = append(m.Content, copyOf(source.Content[j], budget), copyOf(source.Content[j+1], budget))
				}
			}
		}
		i -= 2
	}
	return nil
}

func clone(n *yaml.Node) *yaml.Node {
	budget := math.MaxInt
	return copyOf(n, &budget)
}

// LineOf returns the line of a node in the file.
func (d *Document) LineOf(n *yaml.Node) int {
	if n == nil || n.Line == 0 {
		return d.Line
	}
	return d.Line + n.Line - 1
}

// Objects returns the objects of the document: its root or, if that is a List, the
// items of it. Mappings without apiVersion or kind are among them. Items of a typed list
// get what they may leave out, which the list says.
func (d *Document) Objects() []*yaml.Node {
	if d.Root == nil {
		return nil
	}
	d.lists = nil
	return d.objects(d.Root)
}

func (d *Document) objects(n *yaml.Node) []*yaml.Node {
	items, kind := Get(n, "items"), Text(n, "kind")
	if items == nil || items.Kind != yaml.SequenceNode || !strings.HasSuffix(kind, "List") {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	typed := typedList{node: n}
	version := Text(n, "apiVersion")
	isTyped := kind != "List" && version != ""
	for _, item := range items.Content {
		if Get(item, "kind") == nil && item.Kind == yaml.MappingNode && isTyped {
			item.Content = append([]*yaml.Node{String("apiVersion"), String(version), String("kind"), String(strings.TrimSuffix(kind, "List"))}, item.Content...)
			typed.added = append(typed.added, item)
		}
		objects := d.objects(item)
		typed.items = append(typed.items, objects...)
		all = append(all, objects...)
	}
	if isTyped {
		d.lists = append(d.lists, typed)
	}
	return all
}

// SettleLists gives typed lists whose objects have been converted the version of these, if
// it is the same for all, and removes from the items what Objects has added.
func (d *Document) SettleLists() {
	for _, list := range d.lists {
		if len(list.items) == 0 {
			continue
		}
		version := Text(list.items[0], "apiVersion")
		if slices.ContainsFunc(list.items, func(item *yaml.Node) bool { return Text(item, "apiVersion") != version }) {
			continue
		}
		SetText(Get(list.node, "apiVersion"), version)
		for _, item := range list.added {
			Delete(item, "apiVersion")
			Delete(item, "kind")
		}
	}
}
