package itemcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// compressing is a writer as the compression of responses is: it asks the cache for
// each write. made is what was compressed, and found is what did not have to be.
type compressing struct {
	cache       *Cache
	copies      bool // the bytes of a write come from another address
	made, found []string
	plain       int // writes that are no pieces
}

func (c *compressing) Write(p []byte) (int, error) {
	if c.copies {
		p = slices.Clone(p)
	}
	before := len(c.made)
	result := c.cache.Compressed(p, func(data []byte) []byte {
		c.made = append(c.made, string(data))
		return []byte("compressed " + string(data))
	})
	switch {
	case result == nil:
		c.plain++
	case string(result) != "compressed "+string(p):
		return 0, fmt.Errorf("%q has the piece %q", p, result)
	case len(c.made) == before:
		c.found = append(c.found, string(p))
	}
	return len(p), nil
}

// write encodes a list of objects in pieces of two items, of which the last may have one.
func (s *steps) write(objects ...metav1.Object) *compressing {
	s.t.Helper()
	w := &compressing{cache: s.cache}
	s.writeTo(w, objects...)
	return w
}

func (s *steps) writeTo(w *compressing, objects ...metav1.Object) {
	s.t.Helper()
	l, found := s.cache.List(pods), make([]Found, len(objects))
	l.Find(objects, found)
	flush := func(data string) {
		if _, err := l.Write(w, []byte(data)); err != nil {
			s.t.Error(err)
		}
	}
	l.Head(1)
	buffer := "["
	for i, obj := range objects {
		l.Add(found[i])
		if found[i].Data == nil {
			l.Keep(obj, []byte(obj.GetUID()))
		}
		if i > 0 {
			buffer += ","
		}
		buffer += string(obj.GetUID())
		if i%2 == 1 {
			flush(buffer)
			buffer = ""
		}
	}
	if n, err := l.End(w, []byte(buffer+"]"), 1); err != nil || n != len(buffer)+1 {
		s.t.Errorf("wrote %d of %d bytes: %v", n, len(buffer)+1, err)
	}
}

func expectPieces(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAPieceIsCompressedOnceAllItsItemsAreKept(t *testing.T) {
	s, a, b, c, d := newSteps(t, 1<<20), object("a"), object("b"), object("c"), object("d")
	s.list(pods, 1, a, b, c)
	s.list(pods, 1, a, b, c)
	w := s.write(a, b, c, d)
	expectPieces(t, w.made, "a,b")
	w = s.write(a, b, c, d) // the second list of d
	expectPieces(t, w.made)
	expectPieces(t, w.found, "a,b")
	w = s.write(a, b, c, d)
	expectPieces(t, w.made, ",c,d")
	w = s.write(a, b, c, d)
	expectPieces(t, w.found, "a,b", ",c,d")
	if w.plain != 2 {
		t.Errorf("%d writes are no pieces, want those of the beginning and of the end", w.plain)
	}
	w = s.write(b, a, c, d)
	expectPieces(t, w.made, "b,a")
}

func TestAPieceOfAChangedObjectIsNotFound(t *testing.T) {
	s, a, b := newSteps(t, 1<<20), object("a"), object("b")
	for range 4 {
		s.write(a, b)
	}
	changed := object("a")
	for range 2 {
		w := s.write(changed, b)
		expectPieces(t, append(w.made, w.found...))
	}
	expectPieces(t, s.write(changed, b).made, "a,b")
	expectPieces(t, s.write(changed, b).found, "a,b")
}

func TestTheSameItemsAtTheBeginningOfAListAreAnotherPiece(t *testing.T) {
	s, a, b, c, d := newSteps(t, 1<<20), object("a"), object("b"), object("c"), object("d")
	for range 4 {
		s.write(a, b, c, d)
	}
	expectPieces(t, s.write(c, d).made, "c,d")
	expectPieces(t, s.write(c, d).found, "c,d")
}

func TestTheEndOfAListIsAPieceUnlessItIsSmall(t *testing.T) {
	s, small, large := newSteps(t, 1<<20), object("a"), object(strings.Repeat("b", smallPiece))
	for range 4 {
		s.write(small)
		s.write(large)
	}
	w := s.write(small)
	expectPieces(t, append(w.made, w.found...))
	if w.plain != 1 {
		t.Errorf("a small list is %d writes", w.plain)
	}
	expectPieces(t, s.write(large).found, string(large.GetUID()))
}

func TestOnlyTheBytesOfAPieceAreReplaced(t *testing.T) {
	s, a, b := newSteps(t, 1<<20), object("a"), object("b")
	for range 4 {
		s.write(a, b)
	}
	w := &compressing{cache: s.cache, copies: true}
	s.writeTo(w, a, b)
	expectPieces(t, append(w.made, w.found...))

	data := []byte("ab")
	if got := s.cache.Compressed(data, func([]byte) []byte { return []byte("no piece") }); got != nil {
		t.Errorf("what no list writes has the piece %q", got)
	}
	s.cache.writing.Store(&data[0], written{2, ""})
	if got := s.cache.Compressed(data[:1], func([]byte) []byte { return []byte("a part") }); got != nil {
		t.Errorf("a part of a piece is %q", got)
	}
}

func TestPiecesAreBoundedAndDropped(t *testing.T) {
	s, a, b, c, d := newSteps(t, 1<<20), object("a"), object("b"), object("c"), object("d")
	s.write(a, b, c, d)
	s.write(a, b, c, d)
	items := s.cache.size
	s.cache.limit = items + overhead + 3*8 + len("compressed a,b")
	for range 3 {
		s.write(a, b, c, d)
	}
	w := s.write(a, b, c, d)
	expectPieces(t, w.found, "a,b")
	expectPieces(t, w.made, ",c,d")
	if s.cache.size != s.cache.limit {
		t.Errorf("holds %d of %d bytes", s.cache.size, s.cache.limit)
	}
	for range 3 {
		s.pass(idle/2 + time.Second)
		s.list(pods, 1, a, b, c, d)
		s.cache.sweep()
	}
	if s.cache.size != items || len(s.cache.pieces) != 0 {
		t.Errorf("holds %d bytes, want %d of the items; %d pieces", s.cache.size, items, len(s.cache.pieces))
	}
}

func TestPiecesEndWithTheSameItems(t *testing.T) {
	l := (*Cache)(nil).List(pods)
	for _, tc := range []struct {
		rule string
		uid  string
		size int
		want bool
	}{
		{"not a small one", "10", leastPiece - 1, false},
		{"with a certain digit", "10", leastPiece, true},
		{"not with another", "11", mostPiece - 1, false},
		{"at its largest size", "11", mostPiece, true},
	} {
		l.Head(0)
		if got := l.Ends(object(tc.uid), tc.size); got != tc.want {
			t.Errorf("%s: %v", tc.rule, got)
		}
		l.Head(10)
		if got := l.Ends(object(tc.uid), tc.size+10); got != tc.want {
			t.Errorf("%s, with a head: %v", tc.rule, got)
		}
	}
}

func TestWithoutACacheNoPieceIsKept(t *testing.T) {
	s := &steps{t: t}
	for range 4 {
		w := s.write(object("a"), object("b"))
		expectPieces(t, append(w.made, w.found...))
	}
}

func TestAPieceIsKeptOnceByConcurrentLists(t *testing.T) {
	s := newSteps(t, 1<<20)
	first, second := &piece{data: []byte("x")}, &piece{data: []byte("y")}
	s.cache.keepPiece("key", first)
	s.cache.keepPiece("key", second)
	if got := s.cache.piece("key"); got != first || s.cache.size != first.size("key") {
		t.Errorf("holds %q, %d bytes", got.data, s.cache.size)
	}
	if strings.Contains(string(s.cache.piece("key").data), "y") {
		t.Error("the second piece replaced the first")
	}
}
