package watchmux

import (
	"container/list"
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

const (
	// ready is how many events a reader finds without anybody's help.
	ready = 16
	// most is how many events a reader may be behind before its watch ends.
	most = 1_000
)

// subscription is a watch that shares, or is about to.
type subscription struct {
	group     *group
	bookmarks bool // are wanted
	result    chan watch.Event
	done      chan struct{} // closed at the end
	leave     func()        // called at the end

	// Guarded by the group's lock.
	shared  *shared       // once it has joined
	place   *list.Element // there
	after   uint64        // the resource version up to which it was told by a watch of its own
	live    bool          // result gets events as they come; else a goroutine has it
	pending []watch.Event // while it is not live
	ended   bool
}

// subscribe opens a watch that will share. If it cannot, leave is not called.
func (g *group) subscribe(ctx context.Context, source Source, key string, opts storage.ListOptions, leave func()) (*subscription, error) {
	s := &subscription{
		group: g, bookmarks: opts.Predicate.AllowWatchBookmarks,
		result: make(chan watch.Event, ready), done: make(chan struct{}), leave: leave,
	}
	ownOpts, state := beginning(opts)
	if !state {
		version, err := g.versioner.ParseResourceVersion(opts.ResourceVersion)
		if err != nil {
			return nil, err
		}
		if g.join(s, version) {
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
		if !s.begin(own, state, opts.SendInitialEvents != nil, func(version uint64) bool { return g.joinOrOpen(s, version, source, opts) }) {
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

// begin passes on what a watch of its own says until the subscription joins the
// others, and reports whether it did. While state holds, the watch tells of the
// objects that there are, in no order; a bookmark follows, which is only passed
// on if it is wanted.
func (s *subscription) begin(own watch.Interface, state, wanted bool, join func(version uint64) bool) bool {
	defer own.Stop()
	for {
		select {
		case e, ok := <-own.ResultChan():
			if !ok {
				return false
			}
			// Of an error it is none, and nothing follows.
			version, err := s.group.versioner.ObjectResourceVersion(e.Object)
			if e.Type != watch.Bookmark || s.bookmarks && (wanted || !state) {
				if !s.pass(e) {
					return false
				}
			}
			if e.Type == watch.Bookmark {
				state = false
			}
			if !state && err == nil && join(version) {
				return true
			}
		case <-s.done:
			return false
		}
	}
}

// pass hands an event to the reader.
func (s *subscription) pass(e watch.Event) bool {
	select {
	case s.result <- e:
		return true
	case <-s.done:
		return false
	}
}

// catchUp passes on what is pending until nothing is.
func (s *subscription) catchUp() {
	for {
		missed := s.missed()
		if len(missed) == 0 {
			return
		}
		for _, e := range missed {
			if !s.pass(e) {
				break
			}
		}
	}
}

// missed takes what is pending. If that is nothing, result is given away: to
// those who tell of events, or, at the end, to nobody.
func (s *subscription) missed() []watch.Event {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	if s.ended {
		close(s.result)
		return nil
	}
	missed := s.pending
	s.pending = nil
	s.live = len(missed) == 0
	return missed
}

// take has the reader told of an event, and reports whether that is possible
// yet. The group's lock is held.
func (s *subscription) take(e watch.Event) bool {
	e = copied(e)
	if s.live {
		select {
		case s.result <- e:
			return true
		default:
		}
		s.live = false
		go s.catchUp()
	}
	if len(s.pending) == most {
		return false
	}
	s.pending = append(s.pending, e)
	return true
}

// ResultChan implements watch.Interface.
func (s *subscription) ResultChan() <-chan watch.Event { return s.result }

// Stop implements watch.Interface.
func (s *subscription) Stop() {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.end(s)
}
