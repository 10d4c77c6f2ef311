package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseJSON reads Text, which is valid JSON, into Root. YAML's reader would not do: it
// knows no surrogate pairs, and no keys of more than 1024 characters.
func (d *Document) parseJSON() error {
	r := jsonReader{text: d.Text, decoder: json.NewDecoder(strings.NewReader(d.Text)), line: 1, budget: maxNodes}
	r.decoder.UseNumber()
	root, err := r.value(0)
	if err != nil {
		return &Error{File: d.File, Line: d.Line + r.line - 1, Err: fmt.Errorf("invalid JSON: %w", err)}
	}
	d.Root = root
	return nil
}

// jsonReader makes nodes of JSON.
type jsonReader struct {
	text    string
	decoder *json.Decoder
	// at is how much of the text line has been counted for, in bytes.
	at, line, budget int
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
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.budget--; depth > maxDepth || r.budget < 0 {
		return nil, errors.New("the document is too large or nested too deeply")
	}
	n := &yaml.Node{Line: r.line}
	delim, isDelim := token.(json.Delim)
	if !isDelim {
		n.Kind = yaml.ScalarNode
		n.Tag, n.Value, n.Style = scalar(token)
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
