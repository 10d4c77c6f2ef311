package alias

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	svcExtension  = "x-svc-"
	kubeExtension = "x-kubernetes-"
	// maxBody is the size above which the server refuses a body (413), in
	// bytes; such a body is passed on as it is.
	maxBody = 3 << 20
	// maxDepth is how deep a document may nest for the server to decode it.
	maxDepth = 10000
)

// extensions are the schema extensions that exist, without their prefix.
var extensions = []string{
	"embedded-resource", "int-or-string", "list-map-keys", "list-type", "map-type", "preserve-unknown-fields", "validations",
}

func schemaPath(domain string) string { return "/apis/apiextensions." + domain + "/" }

// isSchema reports whether the body of a request may hold schemas: it writes
// CustomResourceDefinitions, in JSON or YAML.
func (f filter) isSchema(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		return false
	}
	if !strings.HasPrefix(r.URL.Path, "/apis/apiextensions.") {
		return false
	}
	return slices.ContainsFunc(f.schemaPaths, func(path string) bool { return strings.HasPrefix(r.URL.Path, path) })
}

// translateSchema makes the x-svc- extensions in the request's body
// x-kubernetes-, once the body is read: nothing is held in memory for a
// request that is refused before. It returns nil if the body has none.
func translateSchema(r *http.Request) *schemaBody {
	if r.Body == nil || r.ContentLength > maxBody {
		return nil
	}
	contentType := r.Header.Get("Content-Type")
	find := inJSON
	switch {
	case strings.Contains(contentType, "protobuf"), strings.Contains(contentType, "cbor"):
		return nil
	case strings.Contains(contentType, "yaml"):
		find = inYAML
	}
	body := &schemaBody{ReadCloser: r.Body, find: find}
	r.Body = body
	r.ContentLength = -1
	r.Header.Del("Content-Length")
	return body
}

// schemaBody is a request's body, translated when it is first read.
type schemaBody struct {
	io.ReadCloser
	find       func(body []byte, prefix string) []int
	translated io.Reader
	// names are the extensions that the body has in svc's spelling. The response may
	// begin, when the time is up, while the body is being read.
	names atomic.Pointer[[]string]
}

// used returns the extensions that the body has in svc's spelling alone, without
// their prefix.
func (b *schemaBody) used() []string {
	if names := b.names.Load(); names != nil {
		return *names
	}
	return nil
}

// translate returns a document in Kubernetes' spelling.
func (b *schemaBody) translate(body []byte) []byte {
	places, others := b.find(body, svcExtension), b.find(body, kubeExtension)
	var names []string
	for _, extension := range extensions {
		if hasExtension(body, places, svcExtension+extension) && !hasExtension(body, others, kubeExtension+extension) {
			names = append(names, extension)
		}
	}
	b.names.Store(&names)
	return replace(body, places, svcExtension, kubeExtension)
}

// hasExtension reports whether a key is at one of the places.
func hasExtension(body []byte, places []int, key string) bool {
	return slices.ContainsFunc(places, func(at int) bool {
		rest, ok := bytes.CutPrefix(body[at:], []byte(key))
		return ok && (len(rest) == 0 || bytes.IndexByte([]byte(`"'/: `), rest[0]) >= 0)
	})
}

// Read implements io.Reader.
func (b *schemaBody) Read(p []byte) (int, error) {
	if b.translated == nil {
		body, err := io.ReadAll(io.LimitReader(b.ReadCloser, maxBody+1))
		switch {
		case err != nil:
			b.translated = io.MultiReader(bytes.NewReader(body), failing{err})
		case len(body) > maxBody:
			b.translated = io.MultiReader(bytes.NewReader(body), b.ReadCloser)
		case bytes.Contains(body, []byte(svcExtension)):
			b.translated = bytes.NewReader(b.translate(body))
		default:
			b.translated = bytes.NewReader(body)
		}
	}
	return b.translated.Read(p)
}

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// inJSON returns where the extensions with a prefix begin in a JSON document, and
// in the paths of a JSON patch. It stops at a syntax error, which the server
// reports.
func inJSON(body []byte, prefix string) []int {
	var places []int
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	stack := []level{{}}
	for len(stack) <= maxDepth {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		top := &stack[len(stack)-1]
		text, isString := token.(string)
		end := int(decoder.InputOffset())
		switch {
		case token == json.Delim('{'):
			stack = append(stack, level{object: true, wantsKey: true, properties: top.key == "properties" && !top.properties})
			continue
		case token == json.Delim('['):
			stack = append(stack, level{})
			continue
		case token == json.Delim('}'), token == json.Delim(']'):
			stack = stack[:len(stack)-1]
			top = &stack[len(stack)-1]
		case top.wantsKey:
			top.key, top.wantsKey = text, false
			if at := end - 1 - len(text); isExtension(text, prefix) && !top.properties && bytes.HasPrefix(body[at:], []byte(text)) {
				places = append(places, at)
			}
			continue
		case isString && (top.key == "path" || top.key == "from") && len(stack) == 3:
			places = append(places, pathPlaces(body, text, end, prefix)...)
		}
		top.wantsKey = top.object
	}
	return places
}

// level is an open object or array of a JSON document.
type level struct {
	object bool
	// wantsKey is whether the next token is a key; key is the last one.
	wantsKey bool
	key      string
	// properties is whether the keys are the names of a schema's properties.
	properties bool
}

// pathPlaces are the extensions in the path of a JSON patch's operation, which
// is an object in an array; the path's string ends at end.
func pathPlaces(body []byte, path string, end int, prefix string) []int {
	if !bytes.HasSuffix(body[:end], []byte(`"`+path+`"`)) {
		return nil
	}
	var places []int
	at := end - 1 - len(path)
	for i, segment := range strings.Split(path, "/") {
		if i > 0 && isExtension(segment, prefix) {
			places = append(places, at)
		}
		at += len(segment) + 1
	}
	return places
}

// inYAML returns where the extensions with a prefix begin in a YAML document, as
// inJSON does. A document that is not YAML has none.
func inYAML(body []byte, prefix string) []int {
	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(body)).Decode(&document); err != nil {
		return nil
	}
	position := cursor{body: body, lines: lineStarts(body)}
	var places []int
	var visit func(node *yaml.Node, inProperties bool)
	visit = func(node *yaml.Node, inProperties bool) {
		if node.Kind != yaml.MappingNode {
			for _, child := range node.Content {
				visit(child, false)
			}
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if isExtension(key.Value, prefix) && !inProperties {
				if at, err := position.offset(key); err == nil {
					places = append(places, at)
				}
			}
			visit(value, key.Value == "properties" && !inProperties)
		}
	}
	visit(&document, false)
	return places
}

// cursor finds the texts of the keys of a YAML document. Keys in the order of the document
// have a line's characters counted once, however many of them are on one line.
type cursor struct {
	body  []byte
	lines []int // where each begins
	// at is where the character at column of line is, which are those of the last key.
	line, column, at int
}

// offset is where the text of a key begins in the document. A YAML position
// counts lines and characters from 1 and is that of the quote, if there is one.
func (c *cursor) offset(key *yaml.Node) (int, error) {
	if key.Line > len(c.lines) {
		return 0, errors.New("no such line")
	}
	if key.Line != c.line || key.Column < c.column {
		c.line, c.column, c.at = key.Line, 1, c.lines[key.Line-1]
	}
	for ; c.column < key.Column; c.column++ {
		_, size := utf8.DecodeRune(c.body[c.at:])
		c.at += size
	}
	at := c.at
	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		at++
	}
	if at > len(c.body) || !bytes.HasPrefix(c.body[at:], []byte(key.Value)) {
		return 0, errors.New("the key is escaped")
	}
	return at, nil
}

// lineStarts returns where the lines of a YAML document begin. Besides LF and CR LF,
// the parser ends lines at CR, NEL, LS and PS, as YAML 1.1 does (section 4.2).
func lineStarts(body []byte) []int {
	starts := []int{0}
	for at := 0; at < len(body); {
		char, size := utf8.DecodeRune(body[at:])
		at += size
		switch char {
		case '\r':
			if at < len(body) && body[at] == '\n' {
				at++
			}
			starts = append(starts, at)
		case '\n', '\u0085', '\u2028', '\u2029':
			starts = append(starts, at)
		}
	}
	return starts
}

func isExtension(key, prefix string) bool {
	suffix, ok := strings.CutPrefix(key, prefix)
	return ok && slices.Contains(extensions, suffix)
}

// replace exchanges the prefix of the extensions that begin in the places,
// which are in order.
func replace(body []byte, places []int, prefix, replacement string) []byte {
	if len(places) == 0 {
		return body
	}
	out := make([]byte, 0, len(body)+len(places)*max(0, len(replacement)-len(prefix)))
	from := 0
	for _, at := range places {
		out = append(out, body[from:at]...)
		out = append(out, replacement...)
		from = at + len(prefix)
	}
	return append(out, body[from:]...)
}
