package compression

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"

	"svc.dev/svc/apiserver/itemcache"
)

// level is the fastest; the higher ones save little of JSON and cost much.
const level = flate.BestSpeed

// deflaters are the *flate.Writer that are not in use: each has several hundred KiB.
var deflaters = sync.Pool{New: func() any {
	// The error is that of an unknown level.
	w, _ := flate.NewWriter(nil, level)
	return w
}}

// The header of gzip (RFC 1952, section 2.3) with the method deflate, without a name, a
// time and an operating system, and with the flag of the fastest algorithm.
var header = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255}

// member writes a body as one member of gzip (RFC 1952): not all clients read several.
// What was compressed before becomes a part of it. Unlike gzip.Writer it can write
// blocks of deflate that it is given.
type member struct {
	to      io.Writer
	items   *itemcache.Cache
	deflate *flate.Writer
	begun   bool // the header is written
	pending bool // deflate may hold bytes back, or has not ended with a byte
	sum     uint32
	size    uint32 // modulo 2^32
}

func newMember(to io.Writer, items *itemcache.Cache) *member {
	deflate := deflaters.Get().(*flate.Writer)
	deflate.Reset(to)
	return &member{to: to, items: items, deflate: deflate}
}

// Write implements io.Writer.
func (m *member) Write(p []byte) (int, error) {
	if err := m.begin(); err != nil {
		return 0, err
	}
	m.sum = crc32.Update(m.sum, crc32.IEEETable, p)
	m.size += uint32(len(p)) //nolint:gosec // modulo 2^32
	if blocks := m.items.Compressed(p, deflated); blocks != nil {
		if err := m.insert(blocks); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	m.pending = true
	return m.deflate.Write(p)
}

// insert writes complete blocks that refer to no bytes before them. Those after them do
// not refer to bytes before them, either.
func (m *member) insert(blocks []byte) error {
	if m.pending {
		if err := m.deflate.Flush(); err != nil {
			return err
		}
		m.deflate.Reset(m.to)
		m.pending = false
	}
	_, err := m.to.Write(blocks)
	return err
}

// Flush implements rewrite.Body.
func (m *member) Flush() error {
	if err := m.begin(); err != nil {
		return err
	}
	return m.deflate.Flush()
}

// Close implements io.Closer.
func (m *member) Close() error {
	err := m.end()
	m.deflate.Reset(nil)
	deflaters.Put(m.deflate)
	return err
}

func (m *member) begin() error {
	if m.begun {
		return nil
	}
	m.begun = true
	_, err := m.to.Write(header)
	return err
}

// end writes the last block, and the sum and the size of the body.
func (m *member) end() error {
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.deflate.Close(); err != nil {
		return err
	}
	trailer := binary.LittleEndian.AppendUint32(nil, m.sum)
	_, err := m.to.Write(binary.LittleEndian.AppendUint32(trailer, m.size))
	return err
}

// deflated returns data as blocks of deflate, of which none is the last of a body. They
// end with a byte.
func deflated(data []byte) []byte {
	var blocks bytes.Buffer
	deflate := deflaters.Get().(*flate.Writer)
	deflate.Reset(&blocks)
	// Writes to a buffer cannot fail.
	_, _ = deflate.Write(data)
	_ = deflate.Flush()
	deflate.Reset(nil)
	deflaters.Put(deflate)
	return bytes.Clone(blocks.Bytes())
}
