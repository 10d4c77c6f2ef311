package manifest

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Write returns the text of a document whose Root has been changed. What the change does not
// concern stays as it is. Scalars that have other values are replaced where they stand. If
// there is more, it encodes the content before and after the change, and applies the
// difference of the two to the lines of the text. Where this would not give the same
// content, the text is encoded as a whole.
func (d *Document) Write() (string, error) {
	if d.JSON {
		return d.writeJSON()
	}
	before := &Document{File: d.File, Line: d.Line, Text: d.Text}
	if err := before.parse(); err != nil {
		return "", err
	}
	if text, ok := d.replaceScalars(before.Root); ok && d.isText(text) {
		return text, nil
	}
	head, body := d.head()
	style := styleOf(before)
	base, err := style.encode(before.Root)
	if err != nil {
		return "", err
	}
	changed, err := style.encode(d.Root)
	if err != nil {
		return "", err
	}
	newline := "\n"
	if strings.Contains(d.Text, "\r\n") {
		newline = "\r\n"
	}
	if patched, ok := patch(base, body, changed, newline); ok && d.isText(head+patched) {
		return head + patched, nil
	}
	return head + strings.Join(lines(changed, newline), ""), nil
}

// isText reports whether a text has the content of the document.
func (d *Document) isText(text string) bool {
	after := &Document{File: d.File, Text: text, JSON: d.JSON}
	return after.parse() == nil && equal(after.Root, d.Root)
}

// head returns what is before the content of a document, up to its separator, and the rest.
func (d *Document) head() (head, body string) {
	at := 0
	if strings.HasPrefix(d.Text, byteOrderMark) {
		at = len(byteOrderMark)
	}
	end := at
	for line := range strings.Lines(d.Text[at:]) {
		at += len(line)
		if isSeparator(line) && strings.TrimSpace(line) == "---" {
			return d.Text[:at], d.Text[at:]
		}
		if !isComment(line) && line[0] != '%' {
			break
		}
	}
	return d.Text[:end], d.Text[end:]
}

// equal reports whether two nodes have the same content.
func equal(a, b *yaml.Node) bool {
	switch {
	case a == nil || b == nil || a.Kind != b.Kind || len(a.Content) != len(b.Content):
		return false
	case a.Kind == yaml.ScalarNode:
		return a.ShortTag() == b.ShortTag() && (a.Value == b.Value || a.ShortTag() == "!!null")
	case a.Kind == yaml.MappingNode:
		for i := 0; i < len(a.Content); i += 2 {
			j := i
			if a.Content[i].Value != b.Content[i].Value {
				j = index(b, a.Content[i].Value) // what an alias has merged may have another place
			}
			if j < 0 || !equal(a.Content[i], b.Content[j]) || !equal(a.Content[i+1], b.Content[j+1]) {
				return false
			}
		}
		return true
	}
	for i := range a.Content {
		if !equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// style is how a document is formatted.
type style struct {
	indent  int
	compact bool // lists are not indented below their keys
}

func styleOf(d *Document) style {
	s := style{indent: 2, compact: true}
	s.detect(d.Root)
	return s
}

// detect reads the style from the first nested mapping and the first list.
func (s *style) detect(root *yaml.Node) {
	sawMap, sawList := false, false
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode && n.Style&yaml.FlowStyle == 0 {
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i], n.Content[i+1]
				if value.Style&yaml.FlowStyle != 0 || value.Line <= key.Line || len(value.Content) == 0 {
					continue
				}
				switch offset := value.Column - key.Column; {
				case value.Kind == yaml.MappingNode && !sawMap && offset > 1:
					s.indent, sawMap = offset, true
				case value.Kind == yaml.SequenceNode && !sawList:
					s.compact, sawList = offset == 0, true
				}
			}
		}
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(root)
}

func (s style) encode(root *yaml.Node) (string, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(s.indent)
	if s.compact {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(root); err != nil {
		return "", err
	}
	return out.String(), encoder.Close()
}

// EncodeYAML returns the content in YAML's block style, with its comments. Texts that
// YAML 1.1, which kubectl reads, takes for something else, such as "yes", keep their quotes.
func EncodeYAML(root *yaml.Node) (string, error) {
	block := clone(root)
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		n.Style &^= yaml.FlowStyle
		if !needsQuotes(n) {
			n.Style &^= yaml.DoubleQuotedStyle
		}
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(block)
	return style{indent: 2, compact: true}.encode(block)
}

// needsQuotes reports whether a node is a text that YAML 1.1 or 1.2 reads as another type
// without quotes.
func needsQuotes(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return false
	}
	text, err := yaml.Marshal(n.Value) // a text, unlike a node, is quoted for YAML 1.1, too
	return err == nil && (text[0] == '"' || text[0] == '\'')
}
