package storage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"

	"svc.dev/svc/apiserver/watchmux"
)

// fillTimeout bounds how long the first reader of a type waits for a cache that
// cannot be filled; after that lists go to etcd until it can, and get its errors.
// As long as reads for the cache succeed, a reader waits until its request ends:
// many objects take longer.
const fillTimeout = 5 * time.Second

var errStopped = errors.New("the storage is stopped")

// lazyCache is a store whose watch cache is made by the first list or watch.
// Until then reads and writes go to etcd directly.
type lazyCache struct {
	storage.Interface
	config  cacher.Config
	own     *ownStream        // the config's store
	watches *watchmux.Watches // nil unless equal watches share one
	parts   bool              // watches of a part of the type begin with a list

	opened atomic.Pointer[openCache]
	mu     sync.Mutex
	closed bool
}

type openCache struct {
	cacher    *cacher.Cacher
	delegator *cacher.CacheDelegator
	// filled is set when the cache has been ready for the first time, and late when a reader
	// has waited for that in vain.
	filled, late atomic.Bool
}

// open returns the cache; the first call makes and fills it, at a version if that is
// not nil and etcd still has it.
func (l *lazyCache) open(ctx context.Context, version *string) (*openCache, error) {
	c := l.opened.Load()
	if c == nil {
		var err error
		if c, err = l.make(version); err != nil {
			return nil, err
		}
	}
	for !c.filled.Load() {
		if c.late.Load() && l.own.failed.Load() {
			return c, nil
		}
		waiting, cancel := context.WithTimeout(ctx, fillTimeout)
		err := c.cacher.Wait(waiting)
		timeIsUp := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			c.filled.Store(true)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !timeIsUp, l.own.failed.Load():
			// The server stops, or cannot read the objects. The read that follows fails, too,
			// with a better error.
			c.late.Store(true)
			return c, nil
		}
	}
	return c, nil
}

func (l *lazyCache) make(version *string) (*openCache, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.opened.Load(); c != nil {
		return c, nil
	}
	if l.closed {
		return nil, errStopped
	}
	l.own.first.Store(version)
	made, err := cacher.NewCacherFromConfig(l.config)
	if err != nil {
		return nil, err
	}
	c := &openCache{cacher: made, delegator: cacher.NewCacheDelegator(made, l.Interface)}
	l.opened.Store(c)
	return c, nil
}

func (l *lazyCache) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if c := l.opened.Load(); c != nil {
		c.delegator.Stop()
		c.cacher.Stop()
	}
}

// existing is the cache if there is one, else the store below it.
func (l *lazyCache) existing() storage.Interface {
	if c := l.opened.Load(); c != nil {
		return c.delegator
	}
	return l.Interface
}

// Watch implements storage.Interface. The history of a cache begins with the version at
// which it was filled: a cache that a watch makes is filled at the version from which the
// watch begins, so that the watch misses nothing (document 1, section 7).
func (l *lazyCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	from, err := l.begins(opts)
	if err != nil {
		return nil, err
	}
	c, err := l.open(ctx, from)
	if err != nil {
		return nil, err
	}
	if opts.ResourceVersion == "" && opts.SendInitialEvents == nil {
		if err := l.refresh(ctx, c); err != nil {
			return failedWatch(err), nil
		}
	}
	if from != nil {
		if err := l.reached(ctx, c, *from); err != nil {
			return failedWatch(err), nil
		}
	}
	var source watchmux.Source = c.cacher
	if l.parts {
		source = partWatches{c, &l.config}
	}
	if l.watches == nil {
		return source.Watch(ctx, key, opts)
	}
	return l.watches.Watch(ctx, source, key, opts)
}

// refresh returns when a cache that is ready has what is in etcd: a watch without a version
// begins with the newest state (document 1, section 4). The library's begins with that of the
// cache. An etcd that does not report the progress of watches cannot be waited for.
func (l *lazyCache) refresh(ctx context.Context, c *openCache) error {
	if !c.cacher.Ready() || !delegator.ConsistentReadSupported() {
		return nil
	}
	version, err := l.Interface.GetCurrentResourceVersion(ctx)
	if err != nil {
		return translate(err)
	}
	at := storage.GetOptions{ResourceVersion: strconv.FormatUint(version, 10), IgnoreNotFound: true}
	return c.cacher.Get(ctx, l.config.ResourcePrefix, at, l.config.NewFunc()) // there is no such object
}

// reached returns an error if etcd has not reached the version from which a watch continues: a
// client has it from before etcd was restored. The library's watch would drop all events until
// etcd reaches it; the error lets the client list again. A cache may be behind etcd.
func (l *lazyCache) reached(ctx context.Context, c *openCache, from string) error {
	version, err := l.config.Versioner.ParseResourceVersion(from)
	if err != nil {
		return err
	}
	if !c.cacher.Ready() {
		return nil
	}
	if cached, err := c.cacher.LastSyncResourceVersion(); err == nil && version <= cached {
		return nil
	}
	current, err := l.Interface.GetCurrentResourceVersion(ctx)
	if err != nil {
		return translate(err)
	}
	if version > current {
		return apierrors.NewResourceExpired(fmt.Sprintf("too large resource version: %d, current: %d", version, current))
	}
	return nil
}

// begins returns the version after which a watch needs every event, or nil if it begins
// with the state at any version.
func (l *lazyCache) begins(opts storage.ListOptions) (*string, error) {
	version, err := l.config.Versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if version == 0 || opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		return nil, nil
	}
	return &opts.ResourceVersion, nil
}

// GetList implements storage.Interface.
func (l *lazyCache) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchNotOlderThan && opts.Predicate.Limit > 0 {
		// The cache would ignore the limit.
		return l.Interface.GetList(ctx, key, opts, list)
	}
	if opts.Predicate.Continue != "" && opts.ResourceVersion == "0" {
		// The token has the version (document 1, section 4). With 0, the cache would
		// ignore the limit.
		opts.ResourceVersion = ""
	}
	c, err := l.open(ctx, nil)
	if err != nil {
		return err
	}
	if !c.filled.Load() && l.own.failed.Load() {
		// The cache would ask the client to try again, and not say why.
		return l.Interface.GetList(ctx, key, opts, list)
	}
	return c.delegator.GetList(ctx, key, opts, list)
}

// Get implements storage.Interface.
func (l *lazyCache) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	return l.existing().Get(ctx, key, opts, out)
}

// Delete implements storage.Interface.
func (l *lazyCache) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return l.existing().Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// GuaranteedUpdate implements storage.Interface.
func (l *lazyCache) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	return l.existing().GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
}

// ReadinessCheck implements storage.Interface.
func (l *lazyCache) ReadinessCheck() error {
	if c := l.opened.Load(); c != nil {
		return c.delegator.ReadinessCheck()
	}
	return nil
}

// CompactRevision implements storage.Interface.
func (l *lazyCache) CompactRevision() int64 {
	return l.existing().CompactRevision()
}
