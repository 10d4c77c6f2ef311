// Package watchmux owns the sharing of one watch of the watch cache by many equal
// watches of clients.
//
// The library's watch cache runs a goroutine, two queues and a filter for each
// watch, even if a thousand clients watch the same objects: the informers of all
// node agents, or of a controller's replicas. Here the first equal watches are
// watches of the cache, as in the library. Every further one starts with a watch
// of its own, and replaces it by the shared watch as soon as it has received all
// events up to that one's version.
package watchmux

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// maxUnshared is how many equal watches are watches of the cache before further
	// ones share one.
	maxUnshared = 8
	// minDuration is how long a watch must last to share one. The cache sends a
	// bookmark to each watch shortly before its deadline, which members of a group
	// do not have in common.
	minDuration = 2 * time.Minute
)

// A Source opens watches: the watch cache of a type.
type Source interface {
	Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error)
}

// Watches are the watches of one type, in groups of equal ones.
type Watches struct {
	versioner storage.Versioner
	streams   func() bool

	mu     sync.Mutex
	groups map[identity]*group
}

// New returns Watches without a watch. streams reports whether the source can begin a
// watch with the initial events and a bookmark: the watch cache cannot with an etcd that
// does not report the progress of watches when it is asked to (before 3.4.31, and 3.5.0
// to 3.5.12).
func New(versioner storage.Versioner, streams func() bool) *Watches {
	return &Watches{versioner: versioner, streams: streams, groups: map[identity]*group{}}
}

// identity is what equal watches have in common, so that they receive the same
// events. Namespace and name are those of the request: the cache indexes watches
// by them.
type identity struct {
	key, labels, fields, namespace, name string
	recursive, progress                  bool
}

// Watch opens a watch of source as storage.Interface describes it. The caller must
// stop it or cancel its context.
func (w *Watches) Watch(ctx context.Context, source Source, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !sharable(ctx, opts) || beginsWithState(opts) && !w.streams() {
		return source.Watch(ctx, key, opts)
	}
	g, members := w.enter(identify(ctx, key, opts))
	if members <= maxUnshared {
		made, err := source.Watch(ctx, key, opts)
		if err != nil {
			w.leave(g)
			return nil, err
		}
		context.AfterFunc(ctx, func() { w.leave(g) })
		return made, nil
	}
	made, err := g.subscribe(ctx, source, key, opts, func() { w.leave(g) })
	if err != nil {
		w.leave(g)
		return nil, err
	}
	return made, nil
}

// sharable reports whether a watch may share one: it must last for minDuration,
// begin at a known version or with the initial events, and not be of a shard.
// Deadlines of contexts are by the machine's clock.
func sharable(ctx context.Context, opts storage.ListOptions) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) >= minDuration &&
		opts.Predicate.Label != nil && opts.Predicate.Field != nil &&
		(opts.Predicate.ShardSelector == nil || opts.Predicate.ShardSelector.Empty()) &&
		(opts.SendInitialEvents == nil || *opts.SendInitialEvents)
}

func identify(ctx context.Context, key string, opts storage.ListOptions) identity {
	id := identity{
		key: key, labels: opts.Predicate.Label.String(), fields: opts.Predicate.Field.String(),
		recursive: opts.Recursive, progress: opts.ProgressNotify,
	}
	id.namespace, _ = request.NamespaceFrom(ctx)
	if info, ok := request.RequestInfoFrom(ctx); ok && info != nil {
		id.name = info.Name
	}
	return id
}

// context returns a context with the values that the cache reads, which is not cancelled with a request.
func (id identity) context() context.Context {
	return request.WithRequestInfo(request.WithNamespace(context.Background(), id.namespace), &request.RequestInfo{Name: id.name})
}

// enter adds a watch to its group, and returns the number of watches in it.
func (w *Watches) enter(id identity) (g *group, members int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g = w.groups[id]
	if g == nil {
		g = &group{identity: id, versioner: w.versioner}
		w.groups[id] = g
	}
	g.members++
	return g, g.members
}

func (w *Watches) leave(g *group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.members--; g.members == 0 {
		delete(w.groups, g.identity)
	}
}

// beginsWithState reports whether a watch begins with the present objects, without a
// bookmark after them.
func beginsWithState(opts storage.ListOptions) bool {
	return opts.SendInitialEvents == nil && (opts.ResourceVersion == "" || opts.ResourceVersion == "0")
}

// ownOptions returns the options of a subscription's own watch. They ask for a
// bookmark after the initial events, even if the client does not. initial reports
// whether the watch begins with initial events.
func ownOptions(opts storage.ListOptions) (own storage.ListOptions, initial bool) {
	own = opts
	own.Predicate.AllowWatchBookmarks = true
	if beginsWithState(opts) {
		own.ResourceVersion, own.ResourceVersionMatch = "0", metav1.ResourceVersionMatchNotOlderThan
		own.SendInitialEvents = new(true)
	}
	return own, own.SendInitialEvents != nil
}
