package alias

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// magic begins an object in protobuf (document 1, section 2).
const magic = "k8s\x00"

// The fields of the envelope and of its type's metadata that are read, with the wire
// type of bytes.
const (
	typeMetaField   = 1<<3 | 2
	apiVersionField = 1<<3 | 2
)

// envelope translates the apiVersion in the envelope of an object in protobuf: its
// first field holds the type's metadata, whose first field is the apiVersion.
type envelope struct {
	apiVersions []text // by prefix
	held        []byte
	done        bool
}

// next returns what to write after a further piece of the body.
func (e *envelope) next(piece []byte) []byte {
	if e.done {
		return piece
	}
	e.held = append(e.held, piece...)
	translated, complete := e.translate(e.held)
	if !complete {
		return nil
	}
	e.done, e.held = true, nil
	return translated
}

// end returns what was held back.
func (e *envelope) end() []byte { return e.held }

// translate returns a body, unless it does not have the whole metadata of the type
// yet.
func (e *envelope) translate(body []byte) (translated []byte, complete bool) {
	prefix := append([]byte(magic), typeMetaField)
	if !bytes.HasPrefix(body, prefix) {
		return body, !bytes.HasPrefix(prefix, body)
	}
	typeMeta, rest, complete := field(body[len(prefix):])
	if !complete || len(typeMeta) == 0 || typeMeta[0] != apiVersionField {
		return body, complete
	}
	apiVersion, others, ok := field(typeMeta[1:])
	if !ok {
		return body, true
	}
	name := e.spelled(string(apiVersion))
	changed := binary.AppendUvarint([]byte{apiVersionField}, uint64(len(name)))
	changed = append(append(changed, name...), others...)
	translated = binary.AppendUvarint(prefix, uint64(len(changed)))
	return append(append(translated, changed...), rest...), true
}

// field splits a body after a length and as many bytes.
func field(body []byte) (content, rest []byte, complete bool) {
	length, n := binary.Uvarint(body)
	if n <= 0 || length > uint64(len(body)-n) {
		return nil, nil, false
	}
	end := n + int(length)
	return body[n:end], body[end:], true
}

// spelled returns an apiVersion as the client spells it. The longest prefix counts.
func (e *envelope) spelled(apiVersion string) string {
	best := text{}
	for _, t := range e.apiVersions {
		if strings.HasPrefix(apiVersion, t.from) && len(t.from) > len(best.from) {
			best = t
		}
	}
	return best.to + apiVersion[len(best.from):]
}
