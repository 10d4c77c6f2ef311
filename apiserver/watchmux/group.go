package watchmux

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// remembered is how many of the last events a newcomer can be told of.
const remembered = 16

// group is equal watches.
type group struct {
	identity
	versioner storage.Versioner
	members   int // guarded by the lock of Watches

	mu     sync.Mutex
	shared *shared // nil while nobody shares
}

// shared is the watch that members share.
type shared struct {
	open   func(version uint64) (watch.Interface, error)
	cancel context.CancelFunc
	watch  watch.Interface
	// version is how far it has come, and since from where on recent has every
	// event.
	version, since uint64
	recent         []event
	subscriptions  list.List // of *subscription, in the order in which they joined
	closed         bool
}

type event struct {
	watch.Event
	version uint64
}

// join lets a subscription that has been told of all up to version go on with
// what is shared, if that reaches back so far. What it has missed waits in it.
func (g *group) join(s *subscription, version uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.joinLocked(s, version)
}

func (g *group) joinLocked(s *subscription, version uint64) bool {
	if s.ended || g.shared == nil || version < g.shared.since {
		return false
	}
	s.shared, s.after = g.shared, version
	for _, e := range g.shared.recent {
		if e.version > version {
			s.pending = append(s.pending, copied(e.Event))
		}
	}
	s.place = g.shared.subscriptions.PushBack(s)
	return true
}

// joinOrOpen is join, and begins to share if nobody does: with what open makes.
func (g *group) joinOrOpen(s *subscription, version uint64, source Source, opts storage.ListOptions) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared == nil && !s.ended {
		g.open(version, source, opts)
	}
	return g.joinLocked(s, version)
}

// open begins to share, from version on. The lock is held.
func (g *group) open(version uint64, source Source, opts storage.ListOptions) {
	ctx, cancel := context.WithCancel(g.context())
	opts.SendInitialEvents, opts.ResourceVersionMatch = nil, ""
	opts.Predicate.AllowWatchBookmarks = true
	s := &shared{cancel: cancel, version: version, since: version, open: func(version uint64) (watch.Interface, error) {
		opts.ResourceVersion = strconv.FormatUint(version, 10)
		return source.Watch(ctx, g.key, opts)
	}}
	var err error
	if s.watch, err = s.open(version); err != nil {
		cancel() // the members go on with their own, which say what is wrong
		return
	}
	g.shared = s
	go g.run(s)
}

// run tells the subscriptions of what happens until none is left. The cache
// ends watches whose reader was not given a processor in time, so that this one
// goes on with another; if that has nothing to say, each learns why when it
// watches anew.
func (g *group) run(s *shared) {
	for g.relay(s) && g.reopen(s) {
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for s.subscriptions.Len() > 0 {
		g.end(s.subscriptions.Front().Value.(*subscription))
	}
	g.close(s)
}

// relay tells of what the watch says until it ends, and reports whether it has
// said anything, and no error.
func (g *group) relay(s *shared) (progress bool) {
	for e := range s.watch.ResultChan() {
		if e.Type == watch.Error {
			return false
		}
		version, err := g.versioner.ObjectResourceVersion(e.Object)
		if err != nil {
			return false
		}
		g.tell(s, event{e, version})
		progress = true
	}
	return progress
}

// reopen goes on with a new watch.
func (g *group) reopen(s *shared) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.closed {
		return false
	}
	s.watch.Stop()
	w, err := s.open(s.version)
	if err != nil {
		return false
	}
	s.watch = w
	return true
}

func (g *group) tell(s *shared, e event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.version = e.version
	if e.Type != watch.Bookmark {
		if len(s.recent) == remembered {
			s.since = s.recent[0].version
			s.recent = slices.Delete(s.recent, 0, 1)
		}
		s.recent = append(s.recent, e)
	}
	for at := s.subscriptions.Front(); at != nil; {
		member := at.Value.(*subscription)
		at = at.Next() // before the member leaves
		if e.version > member.after && (e.Type != watch.Bookmark || member.bookmarks) && !member.take(e.Event) {
			g.end(member)
		}
	}
}

// end ends a subscription. Its result is closed here or by the goroutine that
// has it. The lock is held.
func (g *group) end(s *subscription) {
	if s.ended {
		return
	}
	s.ended = true
	s.leave()
	close(s.done)
	if s.live {
		close(s.result)
	}
	if s.place == nil {
		return
	}
	s.shared.subscriptions.Remove(s.place)
	if s.shared.subscriptions.Len() == 0 {
		g.close(s.shared)
	}
}

// close ends what is shared. The lock is held.
func (g *group) close(s *shared) {
	s.closed = true
	s.cancel()
	s.watch.Stop()
	if g.shared == s {
		g.shared = nil
	}
}

// copied is an event for one more reader. Objects that the cache tells several
// watches of take care of themselves.
func copied(e watch.Event) watch.Event {
	if _, ok := e.Object.(runtime.CacheableObject); !ok {
		e.Object = e.Object.DeepCopyObject()
	}
	return e
}
