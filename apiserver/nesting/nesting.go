// Package nesting bounds how deep a protobuf message may be nested.
//
// JSON and YAML decoders refuse what is nested deeper than 10,000 levels. The
// protobuf decoders of API types do not: they, and the conversions behind
// them, recurse once for each level, and a body within the size limit can hold
// half a million levels of a type that contains itself (a
// CustomResourceDefinition's schema). The stack of a goroutine cannot grow
// that far, and when it overflows the process ends; nothing can recover.
package nesting

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Limit is the most levels of messages within messages, the same as that of
// the JSON decoder.
const Limit = 10_000

// Filter refuses protobuf bodies that are nested deeper than Limit with 400.
// Bodies of more than maxBytes pass, as the handler refuses them without
// decoding.
func Filter(handler http.Handler, s runtime.NegotiatedSerializer, maxBytes int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Body == nil || !strings.Contains(req.Header.Get("Content-Type"), "protobuf") {
			handler.ServeHTTP(w, req)
			return
		}
		data, err := io.ReadAll(io.LimitReader(req.Body, maxBytes+1))
		switch {
		case err != nil:
			refuse(w, req, s, fmt.Sprintf("reading the body: %v", err))
		case int64(len(data)) <= maxBytes && deeper(data[min(len(magic), len(data)):], Limit):
			refuse(w, req, s, fmt.Sprintf("the message is nested deeper than %d levels", Limit))
		default:
			req.Body = body{io.MultiReader(bytes.NewReader(data), req.Body), req.Body}
			handler.ServeHTTP(w, req)
		}
	})
}

func refuse(w http.ResponseWriter, req *http.Request, s runtime.NegotiatedSerializer, message string) {
	responsewriters.ErrorNegotiated(apierrors.NewBadRequest(message), s, schema.GroupVersion{}, w, req)
}

// body is a request's body of which a part was read already.
type body struct {
	io.Reader
	io.Closer
}

// magic is the prefix of a body, before the message (document 1, section 2).
var magic = []byte("k8s\x00")

// deeper reports whether data, read as a protobuf message, holds messages
// within messages on more than limit levels. Without a schema, texts and
// messages look alike, so everything that can be read as a message counts as
// one: a text of that depth by chance does not occur. The time is linear in
// the size of data.
func deeper(data []byte, limit int) bool {
	if limit < 0 {
		return true
	}
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return false
		}
		data = data[n:]
		switch tag & 7 {
		case 0: // varint
			if _, n = binary.Uvarint(data); n <= 0 {
				return false
			}
		case 1: // 64 bits
			n = 8
		case 2: // length, content
			length, m := binary.Uvarint(data)
			if m <= 0 || length > uint64(len(data)-m) {
				return false
			}
			n = m + int(length)
			if deeper(data[m:n], limit-1) {
				return true
			}
		case 3, 4: // begin and end of a group, which decoders skip without recursion
			n = 0
		case 5: // 32 bits
			n = 4
		default:
			return false
		}
		if n > len(data) {
			return false
		}
		data = data[n:]
	}
	return false
}
