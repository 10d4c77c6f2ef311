package itemcache

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

var pods = Class{Type: reflect.TypeFor[string](), APIVersion: "v1", MediaType: "application/json"}

// steps is a cache whose lists a test makes one after the other.
type steps struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	cache *Cache
}

func newSteps(t *testing.T, limit int) *steps {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	return &steps{t: t, clock: clock, cache: New(limit, clock)}
}

func (s *steps) pass(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func object(uid string) metav1.Object {
	return &metav1.ObjectMeta{UID: types.UID(uid), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
}

// list encodes a list of objects as the serializers do, and returns a letter for each
// object: f if it was found, e if it had to be encoded.
func (s *steps) list(of Class, size int, objects ...metav1.Object) string {
	s.t.Helper()
	l := s.cache.List(of)
	found := make([][]byte, len(objects))
	l.Find(objects, found)
	var result strings.Builder
	for i, obj := range objects {
		data := strings.Repeat(string(obj.GetUID()), size)
		switch {
		case found[i] == nil:
			result.WriteByte('e')
			l.Keep(obj, []byte(data))
		case string(found[i]) != data:
			s.t.Errorf("%s has the bytes %q", obj.GetUID(), found[i])
		default:
			result.WriteByte('f')
		}
	}
	return result.String()
}

func (s *steps) expect(got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("got %s, want %s", got, want)
	}
}

func TestItemsAreKeptAtTheSecondListAndFoundAtTheThird(t *testing.T) {
	s, a, b := newSteps(t, 1<<20), object("a"), object("b")
	s.expect(s.list(pods, 10, a, b), "ee")
	s.expect(s.list(pods, 10, a, b), "ee")
	s.expect(s.list(pods, 10, a, b), "ff")
	other := pods
	other.APIVersion = "v2"
	s.expect(s.list(other, 10, a, b), "ee")
	s.pass(repeat + time.Second)
	s.expect(s.list(pods, 10, a, b), "ee") // too late for a repetition
}

func TestAChangedObjectIsNotFound(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	s.list(pods, 10, a)
	s.list(pods, 10, a)
	changed := object("a")
	s.expect(s.list(pods, 10, changed), "e")
	s.expect(s.list(pods, 10, changed), "f")
	s.expect(s.list(pods, 10, a), "e")
	changed.SetManagedFields(nil)
	s.list(pods, 10, changed)
	s.expect(s.list(pods, 10, changed), "e")
}

func TestTheCacheKeepsWhatFits(t *testing.T) {
	s, a, b, c := newSteps(t, 2*(100+overhead)), object("a"), object("b"), object("c")
	s.list(pods, 100, a, b, c)
	s.list(pods, 100, a, b, c)
	for range 3 {
		s.expect(s.list(pods, 100, a, b, c), "ffe")
	}
	if s.cache.size > s.cache.limit {
		t.Errorf("holds %d of %d bytes", s.cache.size, s.cache.limit)
	}
	s.expect(s.list(pods, 100, object("a"), b), "ef") // the new version takes the place of the old
	s.list(pods, 100, c)
	for range 3 { // a is not listed any more
		s.pass(idle / 2)
		s.list(pods, 100, b, c)
	}
	s.expect(s.list(pods, 100, b, c), "ff")
}

func TestItemsThatAreNotUsedAreDropped(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	s.list(pods, 100, a)
	s.list(pods, 100, a)
	s.pass(2 * (idle + time.Second))
	s.cache.List(Class{})
	if s.cache.size != 0 || len(s.cache.classes) != 1 {
		t.Errorf("holds %d bytes in %d classes", s.cache.size, len(s.cache.classes))
	}
}

func TestWithoutACacheNothingIsFoundOrKept(t *testing.T) {
	s, a := &steps{t: t}, object("a")
	for range 3 {
		s.expect(s.list(pods, 10, a), "e")
	}
}
