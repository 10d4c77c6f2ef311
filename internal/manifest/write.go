package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"
)

// Write returns the text of a document whose Root has been changed. Lines that the
// change does not concern stay as they are: it encodes the content before and after
// the change, and applies the difference of the two to the text. Where this would not
// give the same content, the text is encoded as a whole.
func (d *Document) Write() (string, error) {
	before := &Document{File: d.File, Line: d.Line, Text: d.Text, JSON: d.JSON}
	if err := before.parse(); err != nil {
		return "", err
	}
	separator, body := "", d.Text
	if first, rest, found := strings.Cut(d.Text, "\n"); found && isSeparator(first) && strings.TrimRight(first, " \t\r") == "---" {
		separator, body = first+"\n", rest
	}
	style := styleOf(before)
	base, err := style.encode(before.Root)
	if err != nil {
		return "", err
	}
	changed, err := style.encode(d.Root)
	if err != nil {
		return "", err
	}
	text := separator + changed
	if patched, ok := patch(lines(base), lines(body), lines(changed)); ok {
		after := &Document{File: d.File, Text: separator + strings.Join(patched, ""), JSON: d.JSON}
		if after.parse() == nil && Equal(after.Root, d.Root) {
			text = after.Text
		}
	}
	if strings.Contains(d.Text, "\r\n") {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
	}
	return text, nil
}

// Equal reports whether two nodes have the same content.
func Equal(a, b *yaml.Node) bool {
	var x, y any
	return a != nil && b != nil && a.Decode(&x) == nil && b.Decode(&y) == nil && reflect.DeepEqual(x, y)
}

// style is how a document is formatted.
type style struct {
	json    bool
	indent  int
	compact bool // lists are not indented below their keys
}

func styleOf(d *Document) style {
	s := style{json: d.JSON, indent: 2, compact: true}
	if d.JSON {
		s.indent = 0
		if _, rest, found := strings.Cut(strings.TrimSpace(d.Text), "\n"); found {
			s.indent = max(1, len(rest)-len(strings.TrimLeft(rest, " ")))
		}
		return s
	}
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
	if s.json {
		return EncodeJSON(root, s.indent)
	}
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
	return writeValue(out, value)
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

// lines returns the lines of a text, each with a newline.
func lines(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, strings.TrimRight(line, "\r\n")+"\n")
	}
	return list
}

// patch applies to ours the changes from base to theirs, and reports whether each of
// them has a place there.
func patch(base, ours, theirs []string) ([]string, bool) {
	place := matches(plain(base), plain(ours))
	var patched []string
	o, done := 0, 0 // what is done of ours and of base
	for _, c := range difflib.NewMatcherWithJunk(base, theirs, false, nil).GetOpCodes() {
		if c.Tag == 'e' {
			continue
		}
		// A change grows by lines that it leaves until it begins and ends at lines
		// that ours has.
		i, j, k, l := c.I1, c.J1, c.I2, c.J2
		if i == k {
			i, j = i-1, j-1
		}
		for ; i >= done && !has(place, i); i, j = i-1, j-1 {
		}
		for ; k < len(base) && !has(place, k-1); k, l = k+1, l+1 {
		}
		if i < done || j < 0 || l > len(theirs) || !has(place, k-1) {
			return nil, false
		}
		patched = append(append(patched, ours[o:place[i]]...), theirs[j:l]...)
		o, done = place[k-1]+1, k
	}
	return append(patched, ours[o:]...), true
}

// plain returns lines without what the encoder does not keep: spaces within them.
func plain(list []string) []string {
	plain := make([]string, len(list))
	for i, line := range list {
		words := strings.TrimLeft(line, " ")
		plain[i] = line[:len(line)-len(words)] + strings.Join(strings.Fields(words), " ")
	}
	return plain
}

func has(place map[int]int, i int) bool {
	_, ok := place[i]
	return ok
}

// matches returns where lines of base are in other.
func matches(base, other []string) map[int]int {
	found := map[int]int{}
	for _, block := range difflib.NewMatcherWithJunk(base, other, false, nil).GetMatchingBlocks() {
		for i := range block.Size {
			found[block.A+i] = block.B + i
		}
	}
	return found
}
