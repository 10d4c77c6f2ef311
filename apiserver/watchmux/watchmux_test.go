package watchmux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// cache is a source whose watches say what a test has them say.
type cache struct {
	opened []*fakeWatch
	err    error
}

type fakeWatch struct {
	opts    storage.ListOptions
	ctx     context.Context
	result  chan watch.Event
	stopped bool
	ended   sync.Once
}

func (c *cache) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if c.err != nil {
		return nil, c.err
	}
	w := &fakeWatch{opts: opts, ctx: ctx, result: make(chan watch.Event, 5_000)}
	c.opened = append(c.opened, w)
	return w, nil
}

func (w *fakeWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *fakeWatch) Stop() {
	w.stopped = true
	w.end()
}

func (w *fakeWatch) end() { w.ended.Do(func() { close(w.result) }) }

// say sends events, each its type's first letter and a resource version.
func (w *fakeWatch) say(events ...string) {
	for _, e := range events {
		types := map[byte]watch.EventType{'A': watch.Added, 'M': watch.Modified, 'D': watch.Deleted, 'B': watch.Bookmark}
		w.result <- watch.Event{Type: types[e[0]], Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: e[1:]}}}
	}
	synctest.Wait()
}

func (c *cache) last() *fakeWatch { return c.opened[len(c.opened)-1] }

// heard is what a reader finds, and whether its watch has ended.
func heard(w watch.Interface) string {
	var all []string
	for {
		synctest.Wait()
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return strings.Join(append(all, "end"), " ")
			}
			if e.Type == watch.Error {
				all = append(all, "error")
				continue
			}
			all = append(all, string(e.Type[0])+e.Object.(*corev1.ConfigMap).ResourceVersion)
		default:
			return strings.Join(all, " ")
		}
	}
}

func from(version string) storage.ListOptions {
	return storage.ListOptions{Recursive: true, Predicate: storage.Everything, ResourceVersion: version}
}

func withBookmarks(opts storage.ListOptions) storage.ListOptions {
	opts.Predicate.AllowWatchBookmarks = true
	return opts
}

// crowd is a cache and as many watches as do not share.
type crowd struct {
	*cache
	watches *Watches
	ctx     context.Context
	first   []watch.Interface
}

// inCrowd runs a test where the next watch shares, and expects that nothing is
// left behind when all watches are stopped.
func inCrowd(t *testing.T, test func(t *testing.T, c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		c := &crowd{cache: &cache{}, watches: New(storage.APIObjectVersioner{}), ctx: ctx}
		for range alone {
			c.first = append(c.first, c.open(t, from("5")))
		}
		test(t, c)
		cancel()
		synctest.Wait()
		if len(c.watches.groups) != 0 {
			t.Errorf("%d groups are left", len(c.watches.groups))
		}
	})
}

func (c *crowd) open(t *testing.T, opts storage.ListOptions) watch.Interface {
	t.Helper()
	w, err := c.watches.Watch(c.ctx, c.cache, "/configmaps/", opts)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return w
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q instead of %q", what, got, want)
	}
}

func TestTheFirstEqualWatchesAreTheCachesOwn(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		for i, w := range c.first {
			if w != watch.Interface(c.opened[i]) {
				t.Errorf("watch %d is a %T", i, w)
			}
		}
		if w, ok := c.open(t, from("5")).(*subscription); !ok {
			t.Errorf("the next is a %T", w)
		}
	})
}

func TestANewcomerSharesOnceItsOwnWatchHasComeToWhereTheOthersAre(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		a := c.open(t, from("0"))
		own := c.last()
		own.say("A3", "A1")
		if own.stopped {
			t.Fatal("it shares before it knows all objects")
		}
		own.say("B7")
		shared := c.last()
		if !own.stopped || shared == own {
			t.Fatal("it does not share")
		}
		expect(t, "the shared watch begins at", shared.opts.ResourceVersion, "7")

		shared.say("M8", "D9")
		b := c.open(t, from("8"))
		if c.last() != shared {
			t.Error("a watch of its own was opened for somebody who needs none")
		}
		shared.say("A10")
		expect(t, "from the state", heard(a), "A3 A1 M8 D9 A10")
		expect(t, "from a version", heard(b), "D9 A10")

		d := c.open(t, from("6"))
		own = c.last()
		own.say("M7")
		if !own.stopped {
			t.Error("it does not share from the event on from which the others know all")
		}
		shared.say("M11")
		expect(t, "from before what is shared", heard(d), "M7 M8 D9 A10 M11")
	})
}

func TestWhatIsToldTwiceIsPassedOnOnce(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		c.open(t, from("0"))
		c.last().say("B7")
		shared := c.last()
		b := c.open(t, from("0"))
		c.last().say("A9", "B9") // the shared watch is still behind
		shared.say("M8", "A9", "M10")
		expect(t, "heard", heard(b), "A9 M10")
	})
}

func TestTheWatchOfItsOwnGoesOnWhereNoneCanBeShared(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		a := c.open(t, from("0"))
		own := c.last()
		c.err = errors.New("refused")
		own.say("A1", "B7", "M8")
		expect(t, "heard", heard(a), "A1 M8")
		c.err = nil
		own.say("M9")
		c.last().say("M10")
		expect(t, "heard later", heard(a), "M9 M10")
	})
}

func TestBookmarksAreForThoseWhoAskForThem(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		plain, asking := c.open(t, from("0")), c.open(t, withBookmarks(from("0")))
		initial := withBookmarks(from("0"))
		initial.SendInitialEvents, initial.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
		streaming := c.open(t, initial)
		for _, own := range c.opened[alone:] {
			own.say("A1", "B7")
		}
		c.opened[slices.IndexFunc(c.opened, func(w *fakeWatch) bool { return w.opts.ResourceVersion == "7" })].say("M8", "B9")
		expect(t, "without", heard(plain), "A1 M8")
		expect(t, "with, the first being the state's end, of which it has not asked", heard(asking), "A1 M8 B9")
		expect(t, "with initial events", heard(streaming), "A1 B7 M8 B9")
	})
}

// sharing opens watches that share, and returns them and what they share.
func (c *crowd) sharing(t *testing.T, n int) ([]watch.Interface, *fakeWatch) {
	t.Helper()
	all := []watch.Interface{c.open(t, from("0"))}
	c.last().say("B7")
	shared := c.last()
	for len(all) < n {
		all = append(all, c.open(t, from("7")))
	}
	if c.last() != shared {
		t.Fatal("they do not share")
	}
	return all, shared
}

func TestASlowReaderIsToldOfAllInOrderAndHoldsUpNobody(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		all, shared := c.sharing(t, 2)
		var want []string
		for i := range most {
			e := "M" + strconv.Itoa(10+i)
			want = append(want, e)
			shared.say(e)
			expect(t, "the quick one", heard(all[0]), e)
		}
		expect(t, "the slow one", heard(all[1]), strings.Join(want, " "))
		shared.say("D5000")
		expect(t, "the slow one when it has caught up", heard(all[1]), "D5000")
	})
}

func TestAReaderThatIsTooFarBehindIsEnded(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		all, shared := c.sharing(t, 2)
		for i := range 3 * most {
			shared.say("M" + strconv.Itoa(10+i))
			heard(all[0])
		}
		told := strings.Fields(heard(all[1]))
		if last := told[len(told)-1]; last != "end" || len(told) < ready {
			t.Errorf("it was told of %d events, the last %s", len(told), last)
		}
		for i, e := range told[:len(told)-1] {
			if e != fmt.Sprint("M", 10+i) {
				t.Fatalf("event %d is %s", i, e)
			}
		}
		shared.say("D5000")
		expect(t, "the other", heard(all[0]), "D5000")
	})
}

func TestASharedWatchThatTheCacheEndsIsOpenedAgainFromWhereItWas(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		all, shared := c.sharing(t, 2)
		shared.say("M8", "B12")
		shared.end()
		synctest.Wait()
		if c.last() == shared {
			t.Fatal("it was not opened again")
		}
		expect(t, "it is opened from", c.last().opts.ResourceVersion, "12")
		c.last().say("M13")
		for _, w := range all {
			expect(t, "heard", heard(w), "M8 M13")
		}
	})
}

func TestSubscriptionsEndWithASharedWatchThatCannotGoOn(t *testing.T) {
	for rule, end := range map[string]func(c *crowd, shared *fakeWatch){
		"that has said nothing": func(_ *crowd, shared *fakeWatch) { shared.end() },
		"that says an error": func(_ *crowd, shared *fakeWatch) {
			shared.say("M8")
			shared.result <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}}
		},
		"that cannot be opened again": func(c *crowd, shared *fakeWatch) {
			shared.say("M8")
			c.err = errors.New("refused")
			shared.end()
		},
	} {
		t.Run(rule, func(t *testing.T) {
			inCrowd(t, func(t *testing.T, c *crowd) {
				all, shared := c.sharing(t, 3)
				end(c, shared)
				synctest.Wait()
				c.err = nil
				for _, w := range all {
					if told := heard(w); !strings.HasSuffix(told, "end") {
						t.Errorf("told %q", told)
					}
				}
				if !shared.stopped || shared.ctx.Err() == nil {
					t.Error("it is left open")
				}
				if again, shared := c.sharing(t, 2); heard(again[0]) != "" || shared == nil {
					t.Error("nobody can share any more")
				}
			})
		})
	}
}

func TestAWatchOfItsOwnThatEndsEndsTheSubscription(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		w := c.open(t, from("0"))
		c.last().result <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}}
		c.last().end()
		expect(t, "heard", heard(w), "error end")
	})
}

func TestWhatIsSharedEndsWithItsLastSubscription(t *testing.T) {
	for rule, stop := range map[string]func(w watch.Interface, cancel context.CancelFunc){
		"that is stopped":          func(w watch.Interface, _ context.CancelFunc) { w.Stop(); w.Stop() },
		"whose context has ended":  func(_ watch.Interface, cancel context.CancelFunc) { cancel() },
		"that is stopped and ends": func(w watch.Interface, cancel context.CancelFunc) { w.Stop(); cancel() },
	} {
		t.Run(rule, func(t *testing.T) {
			inCrowd(t, func(t *testing.T, c *crowd) {
				var cancel context.CancelFunc
				c.ctx, cancel = context.WithCancel(c.ctx)
				all, shared := c.sharing(t, 2)
				stop(all[0], func() {})
				if rule != "whose context has ended" {
					synctest.Wait()
					if shared.stopped {
						t.Error("it ended with the first")
					}
				}
				stop(all[1], cancel)
				cancel()
				expect(t, "heard", heard(all[0])+" "+heard(all[1]), "end end")
				if !shared.stopped || shared.ctx.Err() == nil {
					t.Error("it is left open")
				}
			})
		})
	}
}

func TestASubscriptionThatIsStoppedAtItsBeginningLeavesNothing(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		w := c.open(t, from("0"))
		w.Stop()
		expect(t, "heard", heard(w), "end")
		if !c.last().stopped {
			t.Error("its own watch is left open")
		}
	})
}

func TestAWatchThatCannotBeOpenedIsNotCounted(t *testing.T) {
	inCrowd(t, func(t *testing.T, c *crowd) {
		c.err = errors.New("refused")
		for range 3 {
			if _, err := c.watches.Watch(c.ctx, c.cache, "/configmaps/", from("0")); !errors.Is(err, c.err) {
				t.Errorf("error %v", err)
			}
			if _, err := c.watches.Watch(c.ctx, c.cache, "/pods/", from("0")); !errors.Is(err, c.err) {
				t.Errorf("error %v", err)
			}
		}
		if _, err := c.watches.Watch(c.ctx, c.cache, "/configmaps/", from("many")); err == nil {
			t.Error("a wrong version was taken")
		}
	})
}

func TestWatchesThatAreNotEqualDoNotShare(t *testing.T) {
	other := func(change func(opts *storage.ListOptions)) storage.ListOptions {
		opts := from("5")
		change(&opts)
		return opts
	}
	hour, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	minute, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for rule, test := range map[string]struct {
		ctx  context.Context
		key  string
		opts storage.ListOptions
	}{
		"of another key":        {hour, "/configmaps/default/", from("5")},
		"of other labels":       {hour, "/configmaps/", other(func(o *storage.ListOptions) { o.Predicate.Label = labels.SelectorFromSet(labels.Set{"a": "b"}) })},
		"of other fields":       {hour, "/configmaps/", other(func(o *storage.ListOptions) { o.Predicate.Field = fields.OneTermEqualSelector("metadata.name", "a") })},
		"of one object":         {hour, "/configmaps/", other(func(o *storage.ListOptions) { o.Recursive = false })},
		"of another namespace":  {request.WithNamespace(hour, "a"), "/configmaps/", from("5")},
		"of a name":             {request.WithRequestInfo(hour, &request.RequestInfo{Name: "a"}), "/configmaps/", from("5")},
		"that ask for progress": {hour, "/configmaps/", other(func(o *storage.ListOptions) { o.ProgressNotify = true })},
		"that end soon":         {minute, "/configmaps/", from("5")},
		"that have no end":      {t.Context(), "/configmaps/", from("5")},
		"that begin anywhere":   {hour, "/configmaps/", other(func(o *storage.ListOptions) { o.SendInitialEvents = new(false) })},
	} {
		t.Run(rule, func(t *testing.T) {
			c, w := &cache{}, New(storage.APIObjectVersioner{})
			for range alone {
				if _, err := w.Watch(hour, c, "/configmaps/", from("5")); err != nil {
					t.Fatal(err)
				}
			}
			made, err := w.Watch(test.ctx, c, test.key, test.opts)
			if err != nil || made != watch.Interface(c.last()) {
				t.Errorf("a %T, %v", made, err)
			}
		})
	}
}
