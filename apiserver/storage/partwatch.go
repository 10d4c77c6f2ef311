package storage

import (
	"context"
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/util/flowcontrol"
)

// maxPart is how many objects a watch may begin with to begin with a list. A list holds
// shallow copies of all its objects until they are sent.
const maxPart = 1_000

// partWatches opens watches of a cache. A watch that begins with the objects of a part of
// the type (of a namespace, or those that a selector selects) begins with a list, which
// reads the namespace or an index: the library's watch visits every object of the type,
// and makes an event of it before it selects. A client cannot tell the two apart.
type partWatches struct {
	*openCache
	config *cacher.Config
}

// Watch implements watchmux.Source.
func (p partWatches) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !p.ofPart(key, opts) || !p.cacher.Ready() || opts.SendInitialEvents != nil && !delegator.ConsistentReadSupported() {
		return p.cacher.Watch(ctx, key, opts)
	}
	list := p.config.NewListFunc()
	if err := p.delegator.GetList(ctx, key, partOptions(opts), list); err != nil {
		return failedWatch(err), nil
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	if of.GetContinue() != "" {
		return p.cacher.Watch(ctx, key, opts)
	}
	events, err := p.events(list, of.GetResourceVersion(), opts)
	if err != nil {
		return nil, err
	}
	further := opts
	further.ResourceVersion, further.ResourceVersionMatch, further.SendInitialEvents = of.GetResourceVersion(), "", nil
	if len(events) == 0 {
		return p.cacher.Watch(ctx, key, further)
	}
	// Flow control counts the watch as a request until its first events are sent.
	own, err := p.cacher.Watch(flowcontrol.WithInitializationSignal(ctx, flowcontrol.NewInitializationSignal()), key, further)
	if err != nil {
		return nil, err
	}
	resource := p.config.GroupResource
	metrics.InitCounter.WithLabelValues(resource.Group, resource.Resource).Add(float64(meta.LenList(list)))
	w := &partWatch{Interface: own, result: make(chan watch.Event), done: make(chan struct{})}
	go w.run(ctx, events)
	return w, nil
}

// failedWatch returns a watch with an error event. So the library reports errors of reading
// the state with which a watch begins.
func failedWatch(err error) watch.Interface {
	var status apierrors.APIStatus = apierrors.NewInternalError(err)
	errors.As(err, &status)
	events, object := make(chan watch.Event, 1), status.Status()
	events <- watch.Event{Type: watch.Error, Object: &object}
	close(events)
	return watch.NewProxyWatcher(events)
}

// ofPart reports whether a watch begins with the objects of a part of the type.
func (p partWatches) ofPart(key string, opts storage.ListOptions) bool {
	begins := opts.ResourceVersion == "" || opts.ResourceVersion == "0"
	if opts.SendInitialEvents != nil {
		begins = *opts.SendInitialEvents
	}
	return begins && opts.Recursive && (!isWhole(key, p.config.ResourcePrefix) || !opts.Predicate.Empty()) &&
		(opts.Predicate.ShardSelector == nil || opts.Predicate.ShardSelector.Empty())
}

// isWhole reports whether a key is that of all objects of a type. The registry's keys
// and prefixes end with a slash or not.
func isWhole(key, prefix string) bool {
	return strings.Trim(key, "/") == strings.Trim(prefix, "/")
}

// partOptions returns the options of the list that a watch begins with: of maxPart
// objects and at the version that the watch asks for, which is the current one with
// initial events and no version, and else that of the cache (lazyCache.refresh). The library's
// lists have no limit at version 0, and every cache has reached version 1.
func partOptions(opts storage.ListOptions) storage.ListOptions {
	if opts.SendInitialEvents == nil || opts.ResourceVersion == "0" {
		opts.ResourceVersion = "1"
	}
	opts.ResourceVersionMatch = ""
	if opts.ResourceVersion != "" {
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	opts.SendInitialEvents = nil
	opts.Predicate.Limit = maxPart
	return opts
}

// events returns the events that a watch begins with: the objects of a list, and the bookmark
// after them if the client asks for it. The objects are shared with the cache.
func (p partWatches) events(list runtime.Object, version string, opts storage.ListOptions) ([]watch.Event, error) {
	var events []watch.Event
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		events = append(events, watch.Event{Type: watch.Added, Object: obj})
		return nil
	}); err != nil {
		return nil, err
	}
	if opts.SendInitialEvents == nil || !opts.Predicate.AllowWatchBookmarks {
		return events, nil
	}
	bookmark := p.config.NewFunc()
	parsed, err := p.config.Versioner.ParseResourceVersion(version)
	if err != nil {
		return nil, err
	}
	if err := p.config.Versioner.UpdateObject(bookmark, parsed); err != nil {
		return nil, err
	}
	if err := storage.AnnotateInitialEventsEndBookmark(bookmark); err != nil {
		return nil, err
	}
	return append(events, watch.Event{Type: watch.Bookmark, Object: bookmark}), nil
}

// partWatch is a watch that begins with events of a list.
type partWatch struct {
	watch.Interface // begins with the list's version
	result          chan watch.Event
	done            chan struct{}
	stop            sync.Once
}

// ResultChan implements watch.Interface.
func (w *partWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *partWatch) Stop() { w.stop.Do(func() { close(w.done) }) }

// run sends the first events, and then those of the watch until it ends.
func (w *partWatch) run(ctx context.Context, first []watch.Event) {
	defer close(w.result)
	defer w.Interface.Stop()
	for i, e := range first {
		first[i].Object = nil
		e.Object = e.Object.DeepCopyObject()
		if !w.send(ctx, e) {
			return
		}
	}
	flowcontrol.WatchInitialized(ctx)
	for {
		select {
		case e, ok := <-w.Interface.ResultChan():
			if !ok || !w.send(ctx, e) {
				return
			}
		case <-w.done:
			return
		}
	}
}

// send sends an event to the reader, and reports whether it could before the end.
func (w *partWatch) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.result <- e:
		return true
	case <-w.done:
		return false
	case <-ctx.Done():
		return false
	}
}
