package groupdomain

import (
	"bytes"
	"encoding/json"
	"io"
)

// jsonBody writes JSON documents, one after the other, with the strings that a node
// describes translated. All other bytes are written as they are, as soon as
// they come: what is held back is the beginning of a string. It takes
// documents of the server itself, and validates nothing.
type jsonBody struct {
	to   io.Writer
	root *node
	kind string // of the document, if it is known

	stack []frame
	// skipped is the number of open objects and arrays below the innermost one that a
	// node describes.
	skipped  int
	inString bool
	escaped  bool // the last byte of a string was a backslash
	text     []byte
	reading  reading
}

// frame is an object or an array that has not ended.
type frame struct {
	node    *node
	array   bool
	inValue bool   // of an object: its key and colon were read
	value   *node  // of an object: the node of the member whose key was read
	isKind  bool   // of an object: that member is its kind
	kind    string // of an object
}

// reading says what becomes of the string that is being read.
type reading int

const (
	passing     reading = iota // it is not looked at
	key                        // it is the key of a member
	kindOf                     // it is the kind of an object
	translating                // it is translated
)

// Write implements io.Writer.
func (b *jsonBody) Write(p []byte) (int, error) {
	written := 0 // the part of p that is written, or held back in text
	for i := 0; i < len(p); {
		if b.skipped > 0 && !b.inString {
			i += b.skip(p[i:])
			continue
		}
		if b.inString {
			end, ended := b.stringEnd(p[i:])
			if b.reading != passing {
				b.text = append(b.text, p[i:i+end]...)
			}
			if b.reading == translating {
				written = i + end
			}
			if i += end; !ended {
				continue
			}
			b.inString = false
			if b.reading == translating {
				if err := b.writeText(); err != nil {
					return 0, err
				}
			}
			b.endString()
			i++ // the quote
			if b.reading == translating {
				written = i
			}
			b.reading, b.text = passing, b.text[:0]
			continue
		}
		if p[i] == '"' {
			b.inString, b.reading = true, b.beginString()
			if b.reading == translating {
				if err := b.write(p[written:i]); err != nil {
					return 0, err
				}
				written = i + 1
			}
		} else {
			b.structure(p[i])
		}
		i++
	}
	return len(p), b.write(p[written:])
}

// Flush implements rewrite.Body.
func (b *jsonBody) Flush() error { return nil }

// Close implements rewrite.Body. The end of a document that is broken off within a
// string that is translated is lost, as is the rest of that document.
func (b *jsonBody) Close() error { return nil }

func (b *jsonBody) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := b.to.Write(p)
	return err
}

// stringEnd returns the number of bytes before the end of the string that p goes on
// with, and whether the end is there.
func (b *jsonBody) stringEnd(p []byte) (int, bool) {
	for i := 0; i < len(p); i++ {
		switch {
		case b.escaped:
			b.escaped = false
		case p[i] == '"':
			return i, true
		case p[i] == '\\':
			b.escaped = true
		default:
			// The next byte that counts is looked for at once.
			quote := bytes.IndexByte(p[i:], '"')
			if quote < 0 {
				quote = len(p) - i
			}
			if escape := bytes.IndexByte(p[i:i+quote], '\\'); escape >= 0 {
				quote = escape
			}
			i += quote - 1
		}
	}
	return len(p), false
}

// skip returns the number of bytes before the end of the object or array that is
// skipped, or before the end of p.
func (b *jsonBody) skip(p []byte) int {
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '"':
			b.reading = passing
			length, ended := b.stringEnd(p[i+1:])
			if i += 1 + length; !ended {
				b.inString = true
			}
		case '{', '[':
			b.skipped++
		case '}', ']':
			if b.skipped--; b.skipped == 0 {
				return i + 1
			}
		}
	}
	return len(p)
}

// top returns the innermost object or array that is described, or nil.
func (b *jsonBody) top() *frame {
	if len(b.stack) == 0 {
		return nil
	}
	return &b.stack[len(b.stack)-1]
}

// next returns the node of the value that begins, or nil.
func (b *jsonBody) next() *node {
	switch top := b.top(); {
	case top == nil:
		return b.root
	case top.array:
		return top.node.elements
	default:
		return top.value
	}
}

// structure notes a byte outside of strings and of what is skipped.
func (b *jsonBody) structure(c byte) {
	switch c {
	case '{', '[':
		if n := b.next(); n == nil {
			b.skipped = 1
		} else {
			opened := frame{node: n, array: c == '['}
			if len(b.stack) == 0 {
				opened.kind = b.kind
			}
			b.stack = append(b.stack, opened)
		}
	case '}', ']':
		if len(b.stack) > 0 {
			b.stack = b.stack[:len(b.stack)-1]
		}
	case ':', ',':
		if top := b.top(); top != nil {
			top.inValue = c == ':'
		}
	}
}

// beginString returns how the string that begins is read.
func (b *jsonBody) beginString() reading {
	top := b.top()
	switch {
	case top != nil && !top.array && !top.inValue:
		return key
	}
	if n := b.next(); n != nil && n.translate != nil {
		return translating
	}
	if top != nil && top.isKind {
		return kindOf
	}
	return passing
}

// endString notes the string that was read.
func (b *jsonBody) endString() {
	switch top := b.top(); b.reading {
	case key:
		top.value, top.isKind = top.node.members[string(b.text)], string(b.text) == "kind"
	case kindOf:
		top.kind = unquoted(b.text)
	}
}

// writeText writes the translation of the string that was read.
func (b *jsonBody) writeText() error {
	kind := ""
	if top := b.top(); top != nil {
		kind = top.kind
	}
	quoted, err := json.Marshal(b.next().translate(unquoted(b.text), kind))
	if err != nil {
		return err
	}
	return b.write(quoted)
}

// unquoted returns the string between two quotes of JSON.
func unquoted(text []byte) string {
	quoted := append(append([]byte{'"'}, text...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(text)
	}
	return s
}
