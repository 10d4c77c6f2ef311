package itemcache

import (
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A list is written in pieces of several items. A piece ends at the same item in
// every list that has the items before it: after a UID with a certain last digit. So a
// change of one item changes one piece, and those behind it stay. The first piece of a
// list is distinguished from an equal one of another list: no separator precedes it.
const (
	leastPiece = 64 << 10 // bytes, twice the window of deflate (RFC 1951, section 2)
	mostPiece  = 128 << 10
	smallPiece = 8 << 10 // bytes: a list of less is compressed each time
	lastDigit  = "0"     // of UIDs, which are hexadecimal: one in sixteen
)

// piece is a compressed sequence of items.
type piece struct {
	data []byte
	used atomic.Int64 // as of item
}

// size is what the cache counts for a piece.
func (p *piece) size(key string) int { return len(p.data) + len(key) + overhead }

// written is a piece while it is being written.
type written struct {
	size int
	key  string
}

// Add adds an item that was appended to the piece, as Find has found it.
func (l *List) Add(item Found) {
	if item.Data == nil {
		l.complete = false
	}
	if l.complete {
		l.numbers = binary.NativeEndian.AppendUint64(l.numbers, item.number)
	}
}

// Head says that n bytes precede the items, in front of the first piece.
func (l *List) Head(n int) { l.head = n }

// Ends reports whether a piece of size bytes, with the head, ends with obj.
func (l *List) Ends(obj metav1.Object, size int) bool {
	size -= l.head
	return size >= mostPiece || size >= leastPiece && strings.HasSuffix(string(obj.GetUID()), lastDigit)
}

// Write writes a piece, which consists of the items that were added since the last one,
// and what precedes it.
func (l *List) Write(w io.Writer, data []byte) (int, error) { return l.write(w, data, len(data)) }

// End writes what is left: the last piece, which may have any size, and n bytes that
// follow the items.
func (l *List) End(w io.Writer, data []byte, n int) (int, error) {
	end := len(data) - n
	if end-l.head < smallPiece {
		l.complete = false
	}
	return l.write(w, data, end)
}

// write writes data, whose bytes from the head to end are a piece. Between here and the
// compression are writers of the libraries, which pass bytes only: while a piece is being
// written, its address distinguishes it.
func (l *List) write(w io.Writer, data []byte, end int) (n int, err error) {
	key, complete, head := string(l.numbers), l.complete, l.head
	l.numbers, l.complete, l.head = l.numbers[:0], l.cache != nil, 0
	if !complete || head == end {
		return w.Write(data)
	}
	first := &data[head]
	l.cache.writing.Store(first, written{end - head, key})
	defer l.cache.writing.Delete(first)
	for _, part := range [][]byte{data[:head], data[head:end], data[end:]} {
		if len(part) == 0 {
			continue
		}
		m, err := w.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Compressed returns what compress makes of data, the bytes of one call of a writer, if
// they are a piece of which all items are kept, and otherwise nil. It calls compress
// only if it does not have the result. A nil cache has no pieces.
func (c *Cache) Compressed(data []byte, compress func(data []byte) []byte) []byte {
	if c == nil || len(data) == 0 {
		return nil
	}
	value, ok := c.writing.Load(&data[0])
	if !ok || value.(written).size != len(data) {
		return nil
	}
	key := value.(written).key
	if known := c.piece(key); known != nil {
		return known.data
	}
	made := &piece{data: compress(data)}
	made.used.Store(c.second())
	c.keepPiece(key, made)
	return made.data
}

// piece returns the piece that consists of the items with the numbers, or nil.
func (c *Cache) piece(numbers string) *piece {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known := c.pieces[numbers]
	if known != nil {
		known.used.Store(c.second())
	}
	return known
}

// keepPiece keeps a piece if there is room.
func (c *Cache) keepPiece(numbers string, made *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := made.size(numbers)
	if c.pieces[numbers] != nil || c.size+size > c.limit {
		return
	}
	c.size += size
	c.pieces[numbers] = made
}

// sweepPieces drops the pieces that no list has used since oldest, in seconds since the
// cache began. The caller holds the lock.
func (c *Cache) sweepPieces(oldest int64) {
	for key, kept := range c.pieces {
		if kept.used.Load() < oldest {
			c.size -= kept.size(key)
			delete(c.pieces, key)
		}
	}
	if len(c.pieces) == 0 {
		c.pieces = map[string]*piece{} // a map does not shrink
	}
}
