package watchmux

import (
	"container/list"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

const (
	// resultBuffer is how many events are sent without a goroutine for the reader.
	resultBuffer = 16
	// maxPending is how many events a reader may be behind before its watch ends.
	maxPending = 1_000
	// maxPendingBytes is how many bytes the objects of these events may have, as they are
	// stored, besides those of the first resultBuffer events: in memory an object takes a
	// few times as much, with its encodings.
	maxPendingBytes = 8 << 20
)

// subscription is a watch that shares one, or will when its own has reached it.
type subscription struct {
	group     *group
	bookmarks bool // the client asks for them
	result    chan watch.Event
	done      chan struct{} // closed at the end
	leave     func()        // called at the end

	// Guarded by the group's lock.
	shared  *shared       // nil before it has joined
	element *list.Element // of shared.subscriptions
	after   uint64        // the resource version up to which its own watch has sent events
	live    bool          // events are sent to result at once; otherwise a goroutine sends them
	pending []pending     // while it is not live
	bytes   int           // of the pending events
	ended   bool
}

// pending is an event that a subscription will send, and its size if it counts.
type pending struct {
	watch.Event
	bytes int
}

// subscribe opens a watch that will share one. If it returns an error, it does not call leave.
func (g *group) subscribe(ctx context.Context, source Source, key string, opts storage.ListOptions, leave func()) (*subscription, error) {
	s := &subscription{
		group: g, bookmarks: opts.Predicate.AllowWatchBookmarks,
		result: make(chan watch.Event, resultBuffer), done: make(chan struct{}), leave: leave,
	}
	ownOpts, state := ownOptions(opts)
	var begin uint64
	if !state {
		var err error
		if begin, err = g.versioner.ParseResourceVersion(opts.ResourceVersion); err != nil {
			return nil, err
		}
		if g.join(s, begin) {
			flowcontrol.WatchInitialized(ctx)
			go s.catchUp()
			context.AfterFunc(ctx, s.Stop)
			return s, nil
		}
	}
	own, err := source.Watch(ctx, key, ownOpts)
	if err != nil {
		return nil, err
	}
	go func() {
		join := func(version uint64) bool { return g.joinOrOpen(s, version, source, opts) }
		if !s.forwardOwn(own, begin, opts.SendInitialEvents != nil, join) {
			s.Stop()
			close(s.result)
			return
		}
		flowcontrol.WatchInitialized(ctx)
		s.catchUp()
	}()
	context.AfterFunc(ctx, s.Stop)
	return s, nil
}

// forwardOwn sends the events of the subscription's own watch until the
// subscription joins the shared one, and reports whether it did. The watch begins
// after the version begin. If that is 0, it begins with the initial events, in any
// order; a bookmark follows them, which is sent only if wanted is set.
//
// The changes of one transaction of etcd have the same version: a lease that expires
// deletes all its events at once. So the subscription joins at a bookmark, or before
// the first event of a further version, and not between two of one version.
func (s *subscription) forwardOwn(own watch.Interface, begin uint64, wanted bool, join func(version uint64) bool) bool {
	defer own.Stop()
	sent, state := begin, begin == 0 // all events up to sent have been sent
	for {
		select {
		case e, ok := <-own.ResultChan():
			if !ok {
				return false
			}
			// An error event has no version, and is the last one.
			version, err := s.group.versioner.ObjectResourceVersion(e.Object)
			if err == nil && !state && version > sent && join(sent) {
				return true
			}
			if e.Type != watch.Bookmark || s.bookmarks && (wanted || !state) {
				if !s.send(e) {
					return false
				}
			}
			if e.Type == watch.Bookmark {
				state = false
				if err == nil && join(version) {
					return true
				}
			}
			if err == nil && !state {
				sent = version
			}
		case <-s.done:
			return false
		}
	}
}

// send sends an event to the reader, and reports whether it could before the end.
func (s *subscription) send(e watch.Event) bool {
	select {
	case s.result <- e:
		return true
	case <-s.done:
		return false
	}
}

// catchUp sends the pending events until there are none.
func (s *subscription) catchUp() {
	for {
		taken := s.takePending()
		if len(taken) == 0 {
			return
		}
		for _, e := range taken {
			if !s.send(e.Event) {
				break
			}
		}
	}
}

// takePending removes and returns some pending events. If there are none, the
// goroutine that calls it must not send to result any more: the subscription is
// live, or it has ended and result is closed.
func (s *subscription) takePending() []pending {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if s.ended {
		close(s.result)
		return nil
	}
	n := min(len(s.pending), resultBuffer)
	taken := slices.Clone(s.pending[:n])
	for _, e := range taken {
		s.bytes -= e.bytes
	}
	if s.pending = slices.Delete(s.pending, 0, n); len(s.pending) == 0 {
		s.pending = nil
	}
	s.live = n == 0
	return taken
}

// deliver sends an event to the reader or makes it pending, and reports whether it
// could: false means that the reader is too far behind. The group's lock is held.
func (s *subscription) deliver(e event) bool {
	made := copyOf(e.Event)
	if s.live {
		select {
		case s.result <- made:
			return true
		default:
		}
		s.live = false
		go s.catchUp()
	}
	next := pending{Event: made}
	if s.behind() {
		next.bytes = e.bytes
	}
	if len(s.pending) == maxPending || s.bytes+next.bytes > maxPendingBytes {
		return false
	}
	s.bytes += next.bytes
	s.pending = append(s.pending, next)
	return true
}

// behind reports whether the sizes of further events count. The group's lock is held.
func (s *subscription) behind() bool { return len(s.pending) >= resultBuffer }

// ResultChan implements watch.Interface.
func (s *subscription) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *subscription) Stop() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.end(s)
}
