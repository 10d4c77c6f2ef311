package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	kubernetesyaml "sigs.k8s.io/yaml"
)

// writeJSON returns the text of a JSON document whose Root has been changed: values that are
// not changed stay as they are. One whose members are others is formatted as before, on one
// line or several.
func (d *Document) writeJSON() (string, error) {
	w := jsonWriter{text: strings.TrimPrefix(d.Text, byteOrderMark), spans: d.spans, indent: "  "}
	if root := d.spans[d.Root]; len(root.content) > 0 {
		first := d.spans[root.content[0]]
		if _, indent, found := strings.Cut(w.text[root.from:first.from], "\n"); found {
			w.indent = indent
		}
	}
	head := d.Text[:len(d.Text)-len(w.text)]
	span, found := d.spans[d.Root]
	if !found {
		text, err := EncodeJSON(d.Root, 2)
		return head + text, err
	}
	if err := w.value(d.Root, 0); err != nil {
		return "", err
	}
	text := head + w.text[:span.from] + w.out.String() + w.text[span.to:]
	if strings.Contains(w.text, "\r\n") {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
	}
	return text, nil
}

// jsonWriter writes the nodes that were read from a text.
type jsonWriter struct {
	out    bytes.Buffer
	text   string
	spans  map[*yaml.Node]span
	indent string
}

// value writes a value within values to a depth.
func (w *jsonWriter) value(n *yaml.Node, depth int) error {
	s, found := w.spans[n]
	found = found && s.tag == n.Tag
	switch {
	case found && n.Kind == yaml.ScalarNode && s.value == n.Value:
		w.out.WriteString(w.text[s.from:s.to])
		return nil
	case n.Kind == yaml.ScalarNode:
		return writeJSON(&w.out, n)
	case found && len(s.content) == len(n.Content) && w.inPlace(n, s):
		return w.members(n, s, depth)
	}
	open, end, step := "[", "]", 1
	if n.Kind == yaml.MappingNode {
		open, end, step = "{", "}", 2
	}
	newline := func(int) {}
	between := ", "
	if !found && depth == 0 || w.onLines(n, s, found) {
		between = ","
		newline = func(depth int) { w.out.WriteString("\n" + strings.Repeat(w.indent, depth)) }
	} else if !strings.Contains(w.text, ", ") {
		between = ","
	}
	w.out.WriteString(open)
	for i := 0; i+step <= len(n.Content); i += step {
		if i > 0 {
			w.out.WriteString(between)
		}
		newline(depth + 1)
		if step == 2 {
			if err := writeValue(&w.out, n.Content[i].Value); err != nil {
				return err
			}
			w.out.WriteString(":")
			if strings.Contains(w.text, ": ") {
				w.out.WriteString(" ")
			}
		}
		if err := w.value(n.Content[i+step-1], depth+1); err != nil {
			return err
		}
	}
	if len(n.Content) > 0 {
		newline(depth)
	}
	w.out.WriteString(end)
	return nil
}

// onLines reports whether a value has its members on lines of their own: as before or, if it
// is new, if the text has several lines.
func (w *jsonWriter) onLines(n *yaml.Node, s span, found bool) bool {
	if len(n.Content) == 0 {
		return false
	}
	text := strings.TrimSpace(w.text)
	if found && len(s.content) > 0 {
		text = w.text[s.from:w.spans[s.content[0]].from]
	}
	return strings.Contains(text, "\n")
}

// inPlace reports whether the members of a value are those that it had before.
func (w *jsonWriter) inPlace(n *yaml.Node, s span) bool {
	for i := range n.Content {
		if _, found := w.spans[n.Content[i]]; n.Content[i] != s.content[i] && (found || n.Kind == yaml.MappingNode && i%2 == 0) {
			return false
		}
	}
	return true
}

// members writes a value with what is between its members as it was.
func (w *jsonWriter) members(n *yaml.Node, s span, depth int) error {
	at := s.from
	for i, child := range n.Content {
		before := w.spans[s.content[i]]
		w.out.WriteString(w.text[at:before.from])
		if err := w.value(child, depth+1); err != nil {
			return err
		}
		at = before.to
	}
	w.out.WriteString(w.text[at:s.to])
	return nil
}

// EncodeJSON returns the content as JSON, with its order; on one line if indent is 0.
func EncodeJSON(root *yaml.Node, indent int) (string, error) {
	var compact, out bytes.Buffer
	if err := writeJSON(&compact, root); err != nil {
		return "", err
	}
	if indent == 0 {
		return compact.String() + "\n", nil
	}
	if err := json.Indent(&out, compact.Bytes(), "", strings.Repeat(" ", indent)); err != nil {
		return "", err
	}
	return out.String() + "\n", nil
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeValue(out, n.Content[i].Value); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeJSON(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	if (n.Tag == "!!int" || n.Tag == "!!float") && json.Valid([]byte(n.Value)) {
		out.WriteString(n.Value) // as it is: no digit is lost
		return nil
	}
	if n.Tag == "!!timestamp" {
		return writeValue(out, n.Value)
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	if b, ok := oldBool(n); ok {
		value = b
	}
	return writeValue(out, value)
}

// oldBool returns the value of a scalar that YAML 1.1, which Kubernetes reads, has as a boolean,
// and YAML 1.2 as a string: yes, no, on, off and their like, without quotes.
func oldBool(n *yaml.Node) (value, ok bool) {
	if n.Tag != "!!str" || n.Style != 0 || n.Line == 0 {
		return false, false
	}
	var old any
	if err := kubernetesyaml.Unmarshal([]byte(n.Value), &old); err != nil {
		return false, false
	}
	value, ok = old.(bool)
	return value, ok
}

func writeValue(out *bytes.Buffer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	out.Truncate(out.Len() - 1) // the encoder ends with a newline
	return nil
}
