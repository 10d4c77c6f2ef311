package bodycheck

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
)

// maxNesting is the largest number of levels of messages within messages, the
// same as that of the JSON decoder.
const maxNesting = 10_000

// selectNesting selects protobuf bodies, which may not be nested deeper than
// maxNesting.
//
// JSON and YAML decoders enforce that limit themselves. The protobuf decoders
// of API types do not: they, and the conversions behind them, recurse once for
// each level, and a body within the size limit can hold half a million levels
// of a type that contains itself (a CustomResourceDefinition's schema). A
// goroutine's stack that overflows ends the process; no handler can recover.
func selectNesting(req *http.Request) Func {
	if !isProtobuf(req) {
		return nil
	}
	return func(body []byte) ([]byte, error) {
		if nestedDeeper(body[min(len(protobufPrefix), len(body)):], maxNesting) {
			return nil, fmt.Errorf("the message is nested deeper than %d levels", maxNesting)
		}
		return body, nil
	}
}

func isProtobuf(req *http.Request) bool { return strings.HasSuffix(mediaType(req), "protobuf") }

// protobufPrefix precedes the message in a body (document 1, section 2).
const protobufPrefix = "k8s\x00"

// nestedDeeper reports whether data, read as a protobuf message, holds messages
// within messages on more than limit levels. Without a schema, strings and
// messages cannot be told apart, so everything that can be read as a message
// counts as one. The time is linear in the size of data.
func nestedDeeper(data []byte, limit int) bool {
	if limit < 0 {
		return true
	}
	for len(data) > 0 {
		tag, n := uvarint(data)
		if n <= 0 {
			return false
		}
		data = data[n:]
		switch tag & 7 {
		case 0: // varint
			if _, n = uvarint(data); n <= 0 {
				return false
			}
		case 1: // 64 bits
			n = 8
		case 2: // length, content
			length, m := uvarint(data)
			if m <= 0 || length > uint64(len(data)-m) {
				return false
			}
			n = m + int(length)
			if nestedDeeper(data[m:n], limit-1) {
				return true
			}
		case 3, 4: // start and end of a group, which decoders skip
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

// uvarint is binary.Uvarint as decoders of API types read it: they drop the bits beyond 64
// of a number of ten bytes.
func uvarint(data []byte) (number uint64, length int) {
	for i, b := range data[:min(len(data), binary.MaxVarintLen64)] {
		number |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return number, i + 1
		}
	}
	return 0, 0
}
