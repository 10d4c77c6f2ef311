package alias

import (
	"bytes"
	"net/http"
	"strings"
)

// spelling has the replacements that spell a response as its client expects.
type spelling struct {
	protobuf bool // the media type is svc's
	// parameters are replaced in the content type, texts in the body.
	parameters []parameter
	texts      []text
	// apiVersions are replaced in objects in protobuf, by prefix.
	apiVersions []text
}

type parameter struct{ key, from, to string }

// text is replaced wherever it occurs in a body.
type text struct{ from, to string }

// addGroup replaces the name of a group.
func (s *spelling) addGroup(from, to string) {
	s.parameters = append(s.parameters, parameter{"g=", from, to})
	s.addAPIVersion(from+"/", to+"/")
}

// addVersion replaces the version v2 of aggregated discovery by v2beta1.
func (s *spelling) addVersion(group string) {
	s.parameters = append(s.parameters, parameter{"v=", discoveryStable, discoveryBeta})
	s.addAPIVersion(discovery+"."+kubeDomain+"/"+discoveryStable, group+"/"+discoveryBeta)
}

// addAPIVersion replaces a prefix of apiVersion fields, in JSON with
// and without indentation, and in YAML. Within a JSON string the quotes are
// escaped, so that data of users stays as it is.
func (s *spelling) addAPIVersion(from, to string) {
	s.apiVersions = append(s.apiVersions, text{from, to})
	for _, before := range []string{`"apiVersion":"`, `"apiVersion": "`, "apiVersion: "} {
		s.texts = append(s.texts, text{before + from, before + to})
	}
}

// correct changes the header of a response.
func (s *spelling) correct(header http.Header) {
	contentType := header.Get("Content-Type")
	corrected := contentType
	if rest, ok := strings.CutPrefix(contentType, kubeProtobuf); ok && s.protobuf {
		corrected = svcProtobuf + rest
	}
	for _, p := range s.parameters {
		corrected = replaceParameter(corrected, p.key, p.from, p.to)
	}
	if corrected != contentType {
		header.Set("Content-Type", corrected)
	}
}

// replacer replaces texts in a body that comes in pieces.
type replacer struct {
	texts []text
	held  []byte // may be the beginning of a text
}

// next returns the next output for a piece of the body.
func (r *replacer) next(piece []byte) []byte {
	rest := piece
	if len(r.held) > 0 {
		rest = append(r.held, piece...)
	}
	replaced, held := r.replace(rest, false)
	r.held = bytes.Clone(held)
	return replaced
}

// end returns the part that was held back.
func (r *replacer) end() []byte {
	replaced, _ := r.replace(r.held, true)
	return replaced
}

// replace returns a part of a body with the texts replaced, and its end, held back
// if it may be the beginning of a text. Nothing of the last part is held back.
func (r *replacer) replace(rest []byte, last bool) (replaced, held []byte) {
	for i := 0; i < len(rest); {
		t, partial := r.at(rest[i:])
		switch {
		case partial && !last:
			return append(replaced, rest[:i]...), rest[i:]
		case t != nil:
			replaced = append(append(replaced, rest[:i]...), t.to...)
			rest, i = rest[i+len(t.from):], 0
		default:
			i++
		}
	}
	if replaced == nil {
		return rest, nil
	}
	return append(replaced, rest...), nil
}

// at returns the longest text that the rest begins with, and whether the rest is the
// beginning of a longer one.
func (r *replacer) at(rest []byte) (found *text, partial bool) {
	for i := range r.texts {
		t := &r.texts[i]
		switch {
		case rest[0] != t.from[0]:
		case len(rest) < len(t.from):
			partial = partial || strings.HasPrefix(t.from, string(rest))
		case string(rest[:len(t.from)]) == t.from && (found == nil || len(t.from) > len(found.from)):
			found = t
		}
	}
	return found, partial
}
