// Package protofields owns the walk over the fields of protobuf messages of any type.
package protofields

import "encoding/binary"

// Prefix precedes the message in a body (document 1, section 2).
const Prefix = "k8s\x00"

// MaxNesting is the largest number of levels of messages within messages that a body may have, the
// same as that of the JSON decoder.
const MaxNesting = 10_000

// Contents calls visit for the content of each field of a message that has its length: of
// strings, bytes and messages, which cannot be told apart without a schema. It ends where a
// decoder of API types cannot read on, or when visit returns false.
func Contents(message []byte, visit func(content []byte) bool) {
	for len(message) > 0 {
		tag, n := uvarint(message)
		if n <= 0 {
			return
		}
		message = message[n:]
		switch tag & 7 {
		case 0: // varint
			if _, n = uvarint(message); n <= 0 {
				return
			}
		case 1: // 64 bits
			n = 8
		case 2: // length, content
			length, m := uvarint(message)
			if m <= 0 || length > uint64(len(message)-m) {
				return
			}
			n = m + int(length)
			if !visit(message[m:n]) {
				return
			}
		case 3, 4: // start and end of a group, which decoders skip
			n = 0
		case 5: // 32 bits
			n = 4
		default:
			return
		}
		if n > len(message) {
			return
		}
		message = message[n:]
	}
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
