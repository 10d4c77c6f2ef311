package jsonencoding

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// quick is a serializer that decodes a document without reading all of it twice to
// find its apiVersion and kind.
type quick struct {
	runtime.Serializer
	decoder runtime.Decoder
}

func newQuick(s runtime.Serializer, scheme *runtime.Scheme, strict bool) quick {
	return quick{s, json.NewSerializerWithOptions(quickMeta{}, scheme, scheme, json.SerializerOptions{Strict: strict})}
}

// Decode implements runtime.Decoder. Errors are those of the library, which decodes
// an invalid document again.
func (q quick) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := q.decoder.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return q.Serializer.Decode(data, defaults, into)
	}
	return obj, gvk, err
}

// quickMeta reads apiVersion and kind of a document if they are plain strings;
// other documents it leaves to the library. It does not validate other members,
// which the decoder does.
type quickMeta struct{}

var _ json.MetaFactory = quickMeta{}

// Interpret implements json.MetaFactory.
func (quickMeta) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	apiVersion, kind, ok := typeOf(data)
	if !ok {
		return json.DefaultMetaFactory.Interpret(data)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	return &schema.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind}, nil
}

// typeOf reads apiVersion and kind from the members of an object. It reports false
// if a member needs the rules of encoding/json: for escapes, null, and names in
// another case, which encoding/json accepts.
func typeOf(data []byte) (apiVersion, kind string, ok bool) {
	s := scanner{data}
	if !s.take('{') {
		return "", "", false
	}
	if s.take('}') {
		return "", "", s.ended()
	}
	for {
		name, plain := s.text()
		if !plain || !s.take(':') {
			return "", "", false
		}
		var into *string
		switch {
		case string(name) == "apiVersion":
			into = &apiVersion
		case string(name) == "kind":
			into = &kind
		case bytes.EqualFold(name, []byte("apiVersion")), bytes.EqualFold(name, []byte("kind")):
			return "", "", false
		}
		if into == nil {
			if !s.skip() {
				return "", "", false
			}
		} else {
			value, plain := s.text()
			if !plain {
				return "", "", false
			}
			*into = string(value)
		}
		if s.take('}') {
			return apiVersion, kind, s.ended()
		}
		if !s.take(',') {
			return "", "", false
		}
	}
}

// scanner is the rest of a document.
type scanner struct{ rest []byte }

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

func (s *scanner) ended() bool {
	s.space()
	return len(s.rest) == 0
}

func (s *scanner) take(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text consumes a string of printable ASCII without escapes.
func (s *scanner) text() (text []byte, plain bool) {
	if !s.take('"') {
		return nil, false
	}
	for i, c := range s.rest {
		switch {
		case c == '"':
			text, s.rest = s.rest[:i], s.rest[i+1:]
			return text, true
		case c == '\\' || c < ' ' || c > '~':
			return nil, false
		}
	}
	return nil, false
}

// skip consumes a value, without validating it, and reports whether it has an end.
func (s *scanner) skip() bool {
	s.space()
	depth := 0
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '"':
			end := stringEnd(s.rest[i+1:])
			if end < 0 {
				return false
			}
			if i += 1 + end; depth == 0 {
				s.rest = s.rest[i+1:]
				return true
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of the object around it
				s.rest = s.rest[i:]
				return i > 0
			}
			if depth--; depth == 0 {
				s.rest = s.rest[i+1:]
				return true
			}
		case ',':
			if depth == 0 {
				s.rest = s.rest[i:]
				return i > 0
			}
		}
	}
	return false
}

// stringEnd returns the index of the quote that ends a string, or -1.
func stringEnd(data []byte) int {
	for from := 0; ; {
		quote := bytes.IndexByte(data[from:], '"')
		if quote < 0 {
			return -1
		}
		quote += from
		escapes := 0
		for i := quote - 1; i >= 0 && data[i] == '\\'; i-- {
			escapes++
		}
		if escapes%2 == 0 {
			return quote
		}
		from = quote + 1
	}
}
