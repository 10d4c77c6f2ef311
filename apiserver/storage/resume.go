package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// progressInterval is how often a watch of the history requests progress. etcd
// does not answer before it has sent the history.
const progressInterval = 100 * time.Millisecond

// resumedWatches owns the goroutines of watches that began before the history of
// their cache. The zero value has none.
type resumedWatches struct {
	mu      sync.Mutex
	stopped bool
	cancels map[int]context.CancelFunc
	last    int
	running sync.WaitGroup
}

// start runs a function in a goroutine. Its context ends with ctx, and when the
// watches stop.
func (r *resumedWatches) start(ctx context.Context, run func(context.Context)) (context.CancelFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, errStopped
	}
	ctx, cancel := context.WithCancel(ctx)
	if r.cancels == nil {
		r.cancels = map[int]context.CancelFunc{}
	}
	r.last++
	id := r.last
	r.cancels[id] = cancel
	r.running.Go(func() {
		defer r.remove(id)
		defer cancel()
		run(ctx)
	})
	return cancel, nil
}

func (r *resumedWatches) remove(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cancels, id)
}

// stop ends all watches and waits for their goroutines.
func (r *resumedWatches) stop() {
	r.mu.Lock()
	r.stopped = true
	for _, cancel := range r.cancels {
		cancel()
	}
	r.mu.Unlock()
	r.running.Wait()
}

// missedBy reports whether a watch begins at a version before the history of the
// cache, whose first event comes after it was filled.
func (l *lazyCache) missedBy(opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil {
		return false // it begins with the state
	}
	version, err := l.Versioner().ParseResourceVersion(opts.ResourceVersion)
	return err == nil && version > 0 && version < l.own.since.Load()
}

// resume returns a watch that has the events up to a version of the cache's
// history from etcd, and the later ones from the cache. So a client that watches
// from the version of its last event receives what it missed when the server was
// restarted; a compacted version is answered with 410, as by the cache.
func (l *lazyCache) resume(ctx context.Context, c *openCache, key string, opts storage.ListOptions) (watch.Interface, error) {
	w := &resumedWatch{cache: l, opened: c, key: key, opts: opts, result: make(chan watch.Event)}
	cancel, err := l.resumed.start(ctx, w.run)
	if err != nil {
		return nil, err
	}
	w.cancel = cancel
	return w, nil
}

// resumedWatch is a watch that began before the history of the cache.
type resumedWatch struct {
	cache  *lazyCache
	opened *openCache
	key    string
	opts   storage.ListOptions
	result chan watch.Event
	cancel context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *resumedWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *resumedWatch) Stop() { w.cancel() }

func (w *resumedWatch) run(ctx context.Context) {
	defer close(w.result)
	version, err := w.forwardHistory(ctx)
	if err == nil && version != "" {
		err = w.forwardCache(ctx, version)
	}
	if err != nil {
		w.send(ctx, errorEvent(err))
	}
}

// forwardHistory sends the events that etcd has, and returns a version of the
// cache's history up to which all were sent. It returns none if the watch has ended.
func (w *resumedWatch) forwardHistory(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithCancel(w.cache.own.historyContext(ctx))
	defer cancel()
	opts := w.opts
	opts.ProgressNotify = true
	history, err := w.cache.Interface.Watch(ctx, w.key, opts)
	if err != nil {
		return "", err
	}
	defer history.Stop()
	requests := w.cache.config.Clock.NewTicker(progressInterval)
	defer requests.Stop()
	for {
		select {
		case <-requests.C():
			if err := w.cache.Interface.RequestWatchProgress(ctx); err != nil {
				return "", err
			}
		case event, more := <-history.ResultChan():
			if !more {
				return "", nil
			}
			if event.Type == watch.Bookmark {
				reached, err := w.cache.Versioner().ObjectResourceVersion(event.Object)
				if err != nil {
					return "", err
				}
				if reached >= w.cache.own.since.Load() {
					return formatVersion(reached), nil
				}
				continue
			}
			if !w.send(ctx, event) || event.Type == watch.Error {
				return "", nil
			}
		}
	}
}

// forwardCache sends the events of the cache after a version.
func (w *resumedWatch) forwardCache(ctx context.Context, version string) error {
	opts := w.opts
	opts.ResourceVersion = version
	later, err := w.cache.watchCache(ctx, w.opened, w.key, opts)
	if err != nil {
		return err
	}
	defer later.Stop()
	for event := range later.ResultChan() {
		if !w.send(ctx, event) {
			return nil
		}
	}
	return nil
}

// send returns false if the watch has ended.
func (w *resumedWatch) send(ctx context.Context, event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

func errorEvent(err error) watch.Event {
	var status apierrors.APIStatus
	if !errors.As(translate(err), &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	return watch.Event{Type: watch.Error, Object: &s}
}
