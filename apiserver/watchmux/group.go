package watchmux

import (
	"container/list"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// maxRecent is how many of the last events are kept for subscriptions that join.
const maxRecent = 16

// group is a group of equal watches.
type group struct {
	identity
	versioner storage.Versioner
	members   int // guarded by the lock of Watches

	mu     sync.Mutex
	shared *shared // nil while no member shares
}

// shared is the watch that members of a group share.
type shared struct {
	open   func(version uint64) (watch.Interface, error)
	cancel context.CancelFunc
	watch  watch.Interface
	// version is that of its last event, and ofVersion the number of events that had
	// it: the changes of one transaction of etcd have the same. recent has every event
	// after the version since.
	version, since uint64
	ofVersion      int
	recent         []event
	subscriptions  list.List // of *subscription, in the order in which they joined
	behind         bool      // whether the sizes of events count for a subscription
	closed         bool
}

type event struct {
	watch.Event
	version uint64
	bytes   int // of its object, if one of the subscriptions is behind
}

// join adds a subscription that has received all events up to version to the
// shared watch, and reports whether it could: recent must reach back to version.
// Events after version become pending in the subscription.
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
			s.pending = append(s.pending, pending{Event: copyOf(e.Event)})
		}
	}
	s.element = g.shared.subscriptions.PushBack(s)
	g.shared.behind = g.shared.behind || s.behind()
	return true
}

// joinOrOpen opens the shared watch if there is none, and reports, as join does, whether the
// subscription could join it.
func (g *group) joinOrOpen(s *subscription, version uint64, source Source, opts storage.ListOptions) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared == nil && !s.ended {
		g.open(version, source, opts)
	}
	return g.joinLocked(s, version)
}

// open opens the shared watch, after version. The lock is held.
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
		cancel() // the members continue with their own watches, which report the error
		return
	}
	g.shared = s
	go g.run(s)
}

// run forwards events to the subscriptions until none is left. The cache ends a
// watch whose reader is late, even if only for lack of a processor, so run opens
// another one and continues. If that one ends without an event, run ends the
// subscriptions: their clients get the error when they watch again.
func (g *group) run(s *shared) {
	for g.forward(s) && g.reopen(s) {
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for s.subscriptions.Len() > 0 {
		g.end(s.subscriptions.Front().Value.(*subscription))
	}
	g.close(s)
}

// forward broadcasts the events of the watch until it ends. It reports whether
// there was an event, and no error.
func (g *group) forward(s *shared) (progress bool) {
	again, known := s.version, s.ofVersion // of a watch that was opened again
	for e := range s.watch.ResultChan() {
		if e.Type == watch.Error {
			return false
		}
		version, err := g.versioner.ObjectResourceVersion(e.Object)
		if err != nil {
			return false
		}
		if version == again && known > 0 && e.Type != watch.Bookmark {
			known--
			continue
		}
		g.broadcast(s, event{Event: e, version: version})
		progress = true
	}
	return progress
}

// reopen replaces the watch by a new one from its version on, and reports whether it could.
// It may have ended between two events of one version: then that version comes again, and
// forward skips the events that it has broadcast.
func (g *group) reopen(s *shared) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.closed {
		return false
	}
	s.watch.Stop()
	from := s.version
	if s.ofVersion > 0 {
		from--
	}
	w, err := s.open(from)
	if err != nil {
		return false
	}
	s.watch = w
	return true
}

// broadcast delivers an event to the subscriptions.
func (g *group) broadcast(s *shared, e event) {
	g.mu.Lock()
	if s.behind {
		g.mu.Unlock() // to encode a large object takes a while
		e.bytes = sizeOf(e.Object)
		g.mu.Lock()
	}
	defer g.mu.Unlock()
	s.behind = false
	switch {
	case e.Type == watch.Bookmark:
		s.ofVersion = 0 // there are no more
	case e.version == s.version && s.ofVersion > 0:
		s.ofVersion++
	default:
		s.ofVersion = 1
	}
	s.version = e.version
	if e.Type != watch.Bookmark {
		if len(s.recent) == maxRecent {
			s.since = s.recent[0].version
			s.recent = slices.Delete(s.recent, 0, 1)
		}
		s.recent = append(s.recent, e)
	}
	for at := s.subscriptions.Front(); at != nil; {
		member := at.Value.(*subscription)
		at = at.Next() // before the member leaves
		if e.version > member.after && (e.Type != watch.Bookmark || member.bookmarks) && !member.deliver(e) {
			g.end(member)
		}
		s.behind = s.behind || member.behind()
	}
}

// end ends a subscription. Its result is closed here or by the goroutine that
// sends to it. The lock is held.
func (g *group) end(s *subscription) {
	if s.ended {
		return
	}
	s.ended, s.pending = true, nil // its request lasts while a reader is suspended
	s.leave()
	close(s.done)
	if s.live {
		close(s.result)
	}
	if s.element == nil {
		return
	}
	s.shared.subscriptions.Remove(s.element)
	if s.shared.subscriptions.Len() == 0 {
		g.close(s.shared)
	}
}

// close ends the shared watch. The lock is held.
func (g *group) close(s *shared) {
	s.closed = true
	s.cancel()
	s.watch.Stop()
	if g.shared == s {
		g.shared = nil
	}
}

// copyOf returns an event for another reader. Cacheable objects are safe to share;
// others are copied.
func copyOf(e watch.Event) watch.Event {
	if _, ok := e.Object.(runtime.CacheableObject); !ok {
		e.Object = e.Object.DeepCopyObject()
	}
	return e
}

// sizeOf returns the size of an object: as protobuf, or else as JSON.
func sizeOf(obj runtime.Object) int {
	if cached, ok := obj.(runtime.CacheableObject); ok {
		obj = cached.GetObject()
	}
	if message, ok := obj.(runtime.ProtobufMarshaller); ok {
		return message.Size()
	}
	var size counter
	// An object that cannot be encoded ends each watch that sends it.
	_ = json.NewEncoder(&size).Encode(obj)
	return int(size)
}

// counter counts the bytes that are written to it.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
