package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseJSON reads Text, which is valid JSON, into Root. YAML's reader would not do: it
// knows no surrogate pairs, and no keys of more than 1024 characters.
func (d *Document) parseJSON() error {
	text := strings.TrimPrefix(d.Text, byteOrderMark)
	r := jsonReader{text: text, decoder: json.NewDecoder(strings.NewReader(text)), line: 1, spans: map[*yaml.Node]span{}}
	r.decoder.UseNumber()
	root, err := r.value(0)
	if err != nil {
		return &Error{File: d.File, Line: d.Line + r.line - 1, Err: fmt.Errorf("invalid JSON: %w", err)}
	}
	d.Root, d.spans = root, r.spans
	return nil
}

// jsonReader makes nodes of JSON.
type jsonReader struct {
	text    string
	decoder *json.Decoder
	// at is how much of the text line has been counted for, in bytes.
	at, line int
	spans    map[*yaml.Node]span
}

// span is where a value is in the text, and what it is before it is changed.
type span struct {
	from, to int
	tag      string
	value    string
	content  []*yaml.Node
}

// token returns the next token, whose line becomes the current one. No token has more
// lines.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.decoder.Token()
	to := int(r.decoder.InputOffset())
	r.line += strings.Count(r.text[r.at:to], "\n")
	r.at = to
	return token, err
}

// value reads a value at a depth.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	from := r.at + len(r.text[r.at:]) - len(strings.TrimLeft(r.text[r.at:], " \t\r\n,:"))
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errors.New("the document is nested too deeply")
	}
	n := &yaml.Node{Line: r.line}
	delim, isDelim := token.(json.Delim)
	if !isDelim {
		n.Kind = yaml.ScalarNode
		n.Tag, n.Value, n.Style = scalar(token)
		r.spans[n] = span{from: from, to: r.at, tag: n.Tag, value: n.Value}
		return n, nil
	}
	n.Kind, n.Tag, n.Style = yaml.SequenceNode, "!!seq", yaml.FlowStyle
	if delim == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for r.decoder.More() {
		child, err := r.value(depth + 1) // keys, too, are texts
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err = r.token() // the end
	r.spans[n] = span{from: from, to: r.at, tag: n.Tag, content: slices.Clone(n.Content)}
	return n, err
}

// scalar returns the tag, the text and the style of a scalar.
func scalar(token json.Token) (tag, text string, style yaml.Style) {
	switch v := token.(type) {
	case string:
		return "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "!!float", v.String(), 0
		}
		return "!!int", v.String(), 0
	case bool:
		return "!!bool", fmt.Sprint(v), 0
	}
	return "!!null", "null", 0
}
