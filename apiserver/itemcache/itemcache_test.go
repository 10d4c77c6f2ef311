package itemcache

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
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
	found := make([]Found, len(objects))
	l.Find(objects, found)
	var result strings.Builder
	for i, obj := range objects {
		data := strings.Repeat(string(obj.GetUID()), size)
		switch {
		case found[i].Data == nil:
			result.WriteByte('e')
			l.Keep(obj, []byte(data))
		case string(found[i].Data) != data:
			s.t.Errorf("%s has the bytes %q", obj.GetUID(), found[i].Data)
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
}

func TestItemsThatAreListedOnceHoldNoBytes(t *testing.T) {
	s, a, b := newSteps(t, 1<<20), object("a"), object("b")
	s.list(pods, 100, a)
	s.list(pods, 100, a, b)
	if want := 100 + 2*overhead; s.cache.size != want {
		t.Errorf("holds %d bytes, want %d", s.cache.size, want)
	}
	s.pass(idle + time.Second)
	s.cache.sweep()
	s.expect(s.list(pods, 100, b), "e") // too late for a repetition
	s.expect(s.list(pods, 100, b), "e")
	s.expect(s.list(pods, 100, b), "f")
}

func TestAChangedObjectIsNotFound(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	s.list(pods, 10, a)
	s.list(pods, 10, a)
	changed := object("a")
	s.expect(s.list(pods, 10, changed), "e")
	s.expect(s.list(pods, 10, changed), "e")
	s.expect(s.list(pods, 10, changed), "f")
	s.expect(s.list(pods, 10, a), "e")
	changed.SetManagedFields(nil)
	s.list(pods, 10, changed)
	s.list(pods, 10, changed)
	s.expect(s.list(pods, 10, changed), "e")
}

func TestObjectsThatAreDecodedForEachListReplaceNoItems(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	for range 5 {
		s.expect(s.list(pods, 10, object("a")), "e")
	}
	if s.cache.size != overhead {
		t.Errorf("holds %d bytes of objects that no list can find", s.cache.size)
	}
	s.list(pods, 10, a)
	s.list(pods, 10, a)
	for range 5 {
		s.expect(s.list(pods, 10, object("a")), "e")
		s.expect(s.list(pods, 10, a), "f")
	}
}

func TestAnItemIsKeptOnceByConcurrentLists(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	s.list(pods, 10, a)
	found := make([]Found, 1)
	first, second := s.cache.List(pods), s.cache.List(pods)
	first.Find([]metav1.Object{a}, found)
	second.Find([]metav1.Object{a}, found)
	first.Keep(a, []byte("first"))
	second.Keep(a, []byte("second"))
	s.cache.List(pods).Find([]metav1.Object{a}, found)
	if string(found[0].Data) != "first" || s.cache.size != overhead+len("first") {
		t.Errorf("holds %d bytes, %q", s.cache.size, found[0].Data)
	}
}

func TestTheCacheKeepsWhatFits(t *testing.T) {
	s, a, b, c := newSteps(t, 2*100+3*overhead), object("a"), object("b"), object("c")
	s.list(pods, 100, a, b, c)
	s.list(pods, 100, a, b, c)
	for range 3 {
		s.expect(s.list(pods, 100, a, b, c), "ffe")
	}
	if s.cache.size > s.cache.limit {
		t.Errorf("holds %d of %d bytes", s.cache.size, s.cache.limit)
	}
	changed := object("a")
	s.expect(s.list(pods, 100, changed, b), "ef")
	s.expect(s.list(pods, 100, changed, b), "ef")
	s.expect(s.list(pods, 100, changed, b), "ff") // the new version takes the place of the old
	for range 3 {                                 // a is not listed any more
		s.pass(idle / 2)
		s.cache.sweep()
		s.list(pods, 100, b, c)
	}
	s.expect(s.list(pods, 100, b, c), "ff")
}

func TestItemsThatAreNotUsedAreDropped(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	ticks, done := clocktesting.NewFakeClock(s.clock.Now()), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		s.cache.Run(ctx, ticks)
	}()
	s.list(pods, 100, a)
	s.list(pods, 100, a)
	s.pass(idle + time.Second)
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return ticks.HasWaiters(), nil }); err != nil {
		t.Fatal(err)
	}
	ticks.Step(idle)
	held := func() int {
		s.cache.mu.RLock()
		defer s.cache.mu.RUnlock()
		return s.cache.size + len(s.cache.classes[pods].items)
	}
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return held() == 0, nil }); err != nil {
		t.Errorf("holds %d", held())
	}
	cancel()
	<-done
}

func TestAnItemThatIsKeptAfterASweepIsCounted(t *testing.T) {
	s, a := newSteps(t, 1<<20), object("a")
	slow := s.cache.List(pods)
	s.pass(2 * idle)
	s.cache.sweep()
	slow.Keep(a, []byte("a"))
	s.expect(s.list(pods, 1, a), "e")
	s.expect(s.list(pods, 1, a), "f")
	s.pass(2 * idle)
	s.cache.sweep()
	if s.cache.size != 0 {
		t.Errorf("holds %d bytes", s.cache.size)
	}
}

func TestWithoutACacheNothingIsFoundOrKept(t *testing.T) {
	s, a := &steps{t: t}, object("a")
	for range 3 {
		s.expect(s.list(pods, 10, a), "e")
	}
	s.cache.Run(t.Context(), clocktesting.NewFakeClock(time.Now()))
}

func TestACustomResourceIsFoundByItsMap(t *testing.T) {
	custom := func(uid string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": uid, "managedFields": []any{map[string]any{"manager": "m"}}}}}
	}
	s := newSteps(t, 1<<20)
	things := Class{Type: reflect.TypeFor[unstructured.Unstructured](), APIVersion: "v1", MediaType: "application/json"}
	a, b := custom("a"), custom("b")
	s.expect(s.list(things, 10, a, b), "ee")
	s.expect(s.list(things, 10, a, b), "ee")
	s.expect(s.list(things, 10, a, &unstructured.Unstructured{Object: b.Object}), "ff")

	changed := custom("b")
	s.expect(s.list(things, 20, changed), "e")
	s.expect(s.list(things, 20, changed), "e")
	s.expect(s.list(things, 20, changed), "f")
	s.expect(s.list(things, 30, b), "e") // the map that the item had before

	s.pass(2 * idle)
	s.cache.sweep()
	s.expect(s.list(things, 40, a, changed), "ee")
	if left := len(s.cache.classes[things].custom); left != 0 {
		t.Errorf("%d maps are kept", left)
	}
}
