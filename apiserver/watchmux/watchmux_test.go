package watchmux

import (
	"context"
	"errors"
	"slices"
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

// cache is a source whose watches send the events that a test gives them.
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

// emit sends events, each the first letter of its type and a resource version.
func (w *fakeWatch) emit(events ...string) {
	for _, e := range events {
		types := map[byte]watch.EventType{'A': watch.Added, 'M': watch.Modified, 'D': watch.Deleted, 'B': watch.Bookmark}
		w.result <- watch.Event{Type: types[e[0]], Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: e[1:]}}}
	}
	synctest.Wait()
}

func (c *cache) last() *fakeWatch { return c.opened[len(c.opened)-1] }

// received returns the events that a reader has, and "end" if its watch has ended.
func received(w watch.Interface) string {
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

// fullGroup is a cache and as many equal watches as do not share.
type fullGroup struct {
	*cache
	watches *Watches
	ctx     context.Context
	first   []watch.Interface
}

// withFullGroup runs a test in which the next watch shares, and then expects that
// no group is left when all watches are stopped.
func withFullGroup(t *testing.T, test func(t *testing.T, c *fullGroup)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		c := &fullGroup{cache: &cache{}, watches: New(storage.APIObjectVersioner{}, func() bool { return true }), ctx: ctx}
		for range maxUnshared {
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

func (c *fullGroup) open(t *testing.T, opts storage.ListOptions) watch.Interface {
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

func TestTheFirstEqualWatchesAreWatchesOfTheCache(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
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

func TestAWatchThatTheCacheCannotBeginWithABookmarkIsOneOfTheCache(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		c.watches.streams = func() bool { return false }
		for _, version := range []string{"", "0"} {
			w := c.open(t, from(version))
			if w != watch.Interface(c.last()) || c.last().opts.SendInitialEvents != nil {
				t.Errorf("from %q: a %T", version, w)
			}
		}
		if w, ok := c.open(t, from("5")).(*subscription); !ok {
			t.Errorf("from a version: a %T", w)
		}
	})
}

func TestASubscriptionJoinsWhenItsOwnWatchHasReachedTheSharedOne(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		a := c.open(t, from("0"))
		own := c.last()
		own.emit("A3", "A1")
		if own.stopped {
			t.Fatal("it shares before it has all initial events")
		}
		own.emit("B7")
		shared := c.last()
		if !own.stopped || shared == own {
			t.Fatal("it does not share")
		}
		expect(t, "the shared watch begins at", shared.opts.ResourceVersion, "7")

		shared.emit("M8", "D9")
		b := c.open(t, from("8"))
		if c.last() != shared {
			t.Error("a watch of its own was opened for a subscription that needs none")
		}
		shared.emit("A10")
		expect(t, "with initial events", received(a), "A3 A1 M8 D9 A10")
		expect(t, "from a version", received(b), "D9 A10")

		d := c.open(t, from("6"))
		own = c.last()
		own.emit("M7", "M8")
		if !own.stopped {
			t.Error("it does not join when its own watch has reached the recent events")
		}
		shared.emit("M11")
		expect(t, "from before the shared watch", received(d), "M7 M8 D9 A10 M11")
	})
}

func TestAllEventsOfATransactionAreSent(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		_, shared := c.sharing(t, 1) // from version 7
		a := c.open(t, from("6"))
		own := c.last()
		own.emit("D7", "D7", "D7") // there may be more of this version
		if own.stopped {
			t.Fatal("it joins between two events of one version")
		}
		own.emit("D7", "M8")
		if !own.stopped {
			t.Error("it does not join at the first event of a further version")
		}
		shared.emit("M8", "D9", "D9", "D9")

		// The cache ends the shared watch between two events of one version.
		shared.end()
		synctest.Wait()
		again := c.last()
		expect(t, "it is opened again from", again.opts.ResourceVersion, "8")
		again.emit("D9", "D9", "D9", "D9", "M10", "B12")
		expect(t, "received", received(a), "D7 D7 D7 D7 M8 D9 D9 D9 D9 M10")
		again.end()
		synctest.Wait()
		expect(t, "after a bookmark it is opened from", c.last().opts.ResourceVersion, "12")
	})
}

func TestAnEventOfBothWatchesIsSentOnce(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		c.open(t, from("0"))
		c.last().emit("B7")
		shared := c.last()
		b := c.open(t, from("0"))
		c.last().emit("A9", "B9") // the shared watch is still behind
		shared.emit("M8", "A9", "M10")
		expect(t, "received", received(b), "A9 M10")
	})
}

func TestASubscriptionKeepsItsOwnWatchIfTheSharedOneCannotBeOpened(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		a := c.open(t, from("0"))
		own := c.last()
		c.err = errors.New("refused")
		own.emit("A1", "B7", "M8")
		expect(t, "received", received(a), "A1 M8")
		c.err = nil
		own.emit("M9")
		c.last().emit("M9", "M10")
		expect(t, "received later", received(a), "M9 M10")
	})
}

func TestBookmarksAreSentOnlyToClientsThatAskForThem(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		plain, asking := c.open(t, from("0")), c.open(t, withBookmarks(from("0")))
		initial := withBookmarks(from("0"))
		initial.SendInitialEvents, initial.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
		streaming := c.open(t, initial)
		for _, own := range c.opened[maxUnshared:] {
			own.emit("A1", "B7")
		}
		c.opened[slices.IndexFunc(c.opened, func(w *fakeWatch) bool { return w.opts.ResourceVersion == "7" })].emit("M8", "B9")
		expect(t, "without", received(plain), "A1 M8")
		expect(t, "with, except for the bookmark after the initial events", received(asking), "A1 M8 B9")
		expect(t, "with initial events", received(streaming), "A1 B7 M8 B9")
	})
}

// sharing opens watches that share one, and returns them and the shared watch.
func (c *fullGroup) sharing(t *testing.T, n int) ([]watch.Interface, *fakeWatch) {
	t.Helper()
	all := []watch.Interface{c.open(t, from("0"))}
	c.last().emit("B7")
	shared := c.last()
	for len(all) < n {
		all = append(all, c.open(t, from("7")))
	}
	if c.last() != shared {
		t.Fatal("they do not share")
	}
	return all, shared
}

func TestASharedWatchThatTheCacheEndsIsOpenedAgainFromItsVersion(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		all, shared := c.sharing(t, 2)
		shared.emit("M8", "B12")
		shared.end()
		synctest.Wait()
		if c.last() == shared {
			t.Fatal("it was not opened again")
		}
		expect(t, "it is opened from", c.last().opts.ResourceVersion, "12")
		c.last().emit("M13")
		for _, w := range all {
			expect(t, "received", received(w), "M8 M13")
		}
	})
}

func TestSubscriptionsEndWithASharedWatchThatCannotContinue(t *testing.T) {
	for rule, end := range map[string]func(c *fullGroup, shared *fakeWatch){
		"that has sent nothing": func(_ *fullGroup, shared *fakeWatch) { shared.end() },
		"that sends an error": func(_ *fullGroup, shared *fakeWatch) {
			shared.emit("M8")
			shared.result <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}}
		},
		"that cannot be opened again": func(c *fullGroup, shared *fakeWatch) {
			shared.emit("M8")
			c.err = errors.New("refused")
			shared.end()
		},
	} {
		t.Run(rule, func(t *testing.T) {
			withFullGroup(t, func(t *testing.T, c *fullGroup) {
				all, shared := c.sharing(t, 3)
				end(c, shared)
				synctest.Wait()
				c.err = nil
				for _, w := range all {
					if events := received(w); !strings.HasSuffix(events, "end") {
						t.Errorf("received %q", events)
					}
				}
				if !shared.stopped || shared.ctx.Err() == nil {
					t.Error("the shared watch is left open")
				}
				if again, shared := c.sharing(t, 2); received(again[0]) != "" || shared == nil {
					t.Error("later watches cannot share")
				}
			})
		})
	}
}

func TestAWatchOfItsOwnThatEndsEndsTheSubscription(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		w := c.open(t, from("0"))
		c.last().result <- watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 410}}
		c.last().end()
		expect(t, "received", received(w), "error end")
	})
}

func TestASharedWatchEndsWithItsLastSubscription(t *testing.T) {
	for rule, stop := range map[string]func(w watch.Interface, cancel context.CancelFunc){
		"that is stopped":          func(w watch.Interface, _ context.CancelFunc) { w.Stop(); w.Stop() },
		"whose context has ended":  func(_ watch.Interface, cancel context.CancelFunc) { cancel() },
		"that is stopped and ends": func(w watch.Interface, cancel context.CancelFunc) { w.Stop(); cancel() },
	} {
		t.Run(rule, func(t *testing.T) {
			withFullGroup(t, func(t *testing.T, c *fullGroup) {
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
				expect(t, "received", received(all[0])+" "+received(all[1]), "end end")
				if !shared.stopped || shared.ctx.Err() == nil {
					t.Error("the shared watch is left open")
				}
			})
		})
	}
}

func TestASubscriptionThatIsStoppedAtOnceLeavesNoWatch(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
		w := c.open(t, from("0"))
		w.Stop()
		expect(t, "received", received(w), "end")
		if !c.last().stopped {
			t.Error("its own watch is left open")
		}
	})
}

func TestAWatchThatCannotBeOpenedIsNotCounted(t *testing.T) {
	withFullGroup(t, func(t *testing.T, c *fullGroup) {
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
			t.Error("an invalid version was accepted")
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
			c, w := &cache{}, New(storage.APIObjectVersioner{}, func() bool { return true })
			for range maxUnshared {
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
