// Package watchmux lets equal watches share one.
//
// The library's watch cache runs a goroutine, two queues and a filter for each
// watch, also where a thousand clients watch the same: the informers of a
// fleet's agents, of a controller's replicas. Here the first of them are the
// cache's, as they always are; from then on a newcomer begins with a watch of
// its own, and leaves it as soon as it has come to where one watch, whose
// events go to all, is.
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
	// alone is how many equal watches do not share.
	alone = 8
	// shortest is how long a watch has to last to share: one that ends sooner
	// is told by the cache, just before, how far it has come.
	shortest = 2 * time.Minute
)

// A Source is what watches are opened on: a type's watch cache.
type Source interface {
	Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error)
}

// Watches are those of one type.
type Watches struct {
	versioner storage.Versioner

	mu     sync.Mutex
	groups map[identity]*group
}

// New has no watches yet.
func New(versioner storage.Versioner) *Watches {
	return &Watches{versioner: versioner, groups: map[identity]*group{}}
}

// identity is what equal watches have in common: they are told of the same
// events. Namespace and name are the request's, by which the cache sorts its
// watches.
type identity struct {
	key, labels, fields, namespace, name string
	recursive, progress                  bool
}

// Watch is source's, as storage.Interface describes it. A watch that is left
// open has to be stopped, or its context ended.
func (w *Watches) Watch(ctx context.Context, source Source, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !sharable(ctx, opts) {
		return source.Watch(ctx, key, opts)
	}
	g, members := w.enter(identify(ctx, key, opts))
	if members <= alone {
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

// sharable reports whether a watch lasts, begins somewhere that is known, and
// is for all of its objects.
func sharable(ctx context.Context, opts storage.ListOptions) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) >= shortest &&
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

// context has of a watch's what the cache asks for, and does not end with it.
func (id identity) context() context.Context {
	return request.WithRequestInfo(request.WithNamespace(context.Background(), id.namespace), &request.RequestInfo{Name: id.name})
}

// enter counts a watch.
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

// beginning is how a watch of its own says when it has told of the objects
// that there were; told reports whether a watch with these options has to tell
// of them. Such a watch would not say so if its client does not ask for it.
func beginning(opts storage.ListOptions) (own storage.ListOptions, told bool) {
	own = opts
	own.Predicate.AllowWatchBookmarks = true
	if opts.SendInitialEvents == nil && (opts.ResourceVersion == "" || opts.ResourceVersion == "0") {
		own.ResourceVersion, own.ResourceVersionMatch = "0", metav1.ResourceVersionMatchNotOlderThan
		own.SendInitialEvents = new(true)
	}
	return own, own.SendInitialEvents != nil
}
