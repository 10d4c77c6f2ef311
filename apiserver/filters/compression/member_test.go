package compression

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/itemcache"
)

// lists writes lists of a cache, each item of which is a text of its own.
type lists struct {
	cache *itemcache.Cache
	items []metav1.Object
	texts map[types.UID][]byte
}

func newLists(random *rand.Rand, n int) *lists {
	l := &lists{cache: itemcache.New(1<<20, clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))), texts: map[types.UID][]byte{}}
	for i := range n {
		obj := &metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
		text := make([]byte, random.Intn(3_000))
		for j := range text {
			text[j] = byte('a' + random.Intn(4))
		}
		l.items, l.texts[obj.UID] = append(l.items, obj), text
	}
	return l
}

// write writes the items with the numbers, of which ends reports which one a piece ends
// with, and returns what it wrote.
func (l *lists) write(to io.Writer, from, n int, ends func(i int) bool) ([]byte, error) {
	list := l.cache.List(itemcache.Class{Type: reflect.TypeFor[string](), MediaType: "text"})
	found := make([]itemcache.Found, n)
	list.Find(l.items[from:from+n], found)
	var all, buffer bytes.Buffer
	buffer.WriteString("the beginning")
	list.Head(buffer.Len())
	for i, obj := range l.items[from : from+n] {
		list.Add(found[i])
		buffer.Write(l.texts[obj.GetUID()])
		if found[i].Data == nil {
			list.Keep(obj, l.texts[obj.GetUID()])
		}
		if ends(from + i) {
			all.Write(buffer.Bytes())
			if _, err := list.Write(to, buffer.Bytes()); err != nil {
				return nil, err
			}
			buffer.Reset()
		}
	}
	const end = "the end"
	buffer.WriteString(end)
	all.Write(buffer.Bytes())
	_, err := list.End(to, buffer.Bytes(), len(end))
	return all.Bytes(), err
}

// decompress reads one member of gzip, and fails the test if there is more.
func decompress(t *testing.T, data []byte) []byte {
	t.Helper()
	source := bytes.NewReader(data)
	reader, err := gzip.NewReader(source)
	if err != nil {
		t.Fatal(err)
	}
	reader.Multistream(false)
	plain, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if source.Len() > 0 {
		t.Errorf("%d bytes follow the member", source.Len())
	}
	return plain
}

func TestListsOfCompressedPiecesAreOneMember(t *testing.T) {
	random := rand.New(rand.NewSource(1)) //nolint:gosec // a test
	l := newLists(random, 60)
	for round := range 50 {
		every := 1 + random.Intn(6)
		from := random.Intn(len(l.items))
		var out bytes.Buffer
		m := newMember(&out, l.cache)
		want, err := l.write(m, from, random.Intn(len(l.items)-from), func(i int) bool {
			if random.Intn(10) == 0 {
				if err := m.Flush(); err != nil {
					t.Error(err)
				}
			}
			return i%every == 0
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if got := decompress(t, out.Bytes()); !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes, want %d, or other ones", round, len(got), len(want))
		}
	}
}

func TestAPieceIsWrittenAsItWasCompressed(t *testing.T) {
	l := newLists(rand.New(rand.NewSource(1)), 10) //nolint:gosec // a test
	var last []byte
	for round := range 6 {
		var out bytes.Buffer
		m := newMember(&out, l.cache)
		if _, err := l.write(m, 0, 10, func(i int) bool { return i == 1 || i == 8 }); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		var middle []byte
		for _, obj := range l.items[2:9] {
			middle = append(middle, l.texts[obj.GetUID()]...)
		}
		if got, want := bytes.Contains(out.Bytes(), deflated(middle)), round >= 2; got != want {
			t.Errorf("list %d contains the piece as it was compressed: %v", round+1, got)
		}
		if round > 2 && !bytes.Equal(out.Bytes(), last) {
			t.Errorf("list %d differs from the one before", round+1)
		}
		last = bytes.Clone(out.Bytes())
	}
}

func TestAnEmptyBodyIsAMember(t *testing.T) {
	var out bytes.Buffer
	if err := newMember(&out, nil).Close(); err != nil {
		t.Fatal(err)
	}
	if got := decompress(t, out.Bytes()); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// failing is a connection that takes some bytes only.
type failing struct{ takes int }

func (f *failing) Write(p []byte) (int, error) {
	if f.takes -= len(p); f.takes < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestABrokenConnectionEndsABody(t *testing.T) {
	l := newLists(rand.New(rand.NewSource(1)), 10) //nolint:gosec // a test
	ends := func(i int) bool { return i%2 == 1 }
	var whole bytes.Buffer
	for range 4 {
		whole.Reset()
		m := newMember(&whole, l.cache)
		if _, err := l.write(m, 0, 10, ends); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for takes := 0; takes < whole.Len(); takes += 1 + whole.Len()/100 {
		m := newMember(&failing{takes}, l.cache)
		_, err := l.write(m, 0, 10, ends)
		if closed := m.Close(); err == nil && closed == nil {
			t.Fatalf("no error though only %d of %d bytes were written", takes, whole.Len())
		}
	}
}
