package storage

import (
	"context"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// ownStream is the store below a watch cache. It gives the cache's watch an
// etcd watch stream of its own, and determines at which version the cache is filled
// first.
//
// A cache that is asked for a version that it has not reached requests progress
// of its stream. etcd answers when every watch of the stream is synced and none
// begins at a later revision than the store's current one
// (https://etcd.io/docs/v3.6/learning/api/#watch-streams). A cache that was
// filled at the current revision watches from the next one. On a stream that
// caches share, it would keep progress from all of them until the next write.
//
// etcd also answers while the stream has no watch, and etcd's client delivers an
// answer to the watches that the stream has by then. A watch that is created
// between the two would take the answer for its own progress, and the cache would
// serve that version without the events up to it. Progress is therefore requested
// only while etcd has the cache's watch.
type ownStream struct {
	storage.Interface
	// id distinguishes the streams of a client: etcd's client opens one stream
	// for all watches whose contexts have equal metadata.
	id string
	// recorded reports whether the store's codec records the times of events
	// (recordingCodec), instead of the store.
	recorded bool
	// failed reports whether the last read for the cache failed.
	failed atomic.Bool
	// first is the version at which the cache is to be filled first; nil is the
	// current one.
	first atomic.Pointer[string]
	// created is the context of the cache's watch, once etcd has created it.
	created atomic.Pointer[context.Context]
}

// streams makes the ids of the streams of one client.
type streams struct{ last atomic.Uint64 }

func (s *streams) wrap(store storage.Interface) *ownStream {
	return &ownStream{Interface: store, id: strconv.FormatUint(s.last.Add(1), 10)}
}

// GetList implements storage.Interface. The cache calls it to be filled, and again if
// that fails. If the first version is not available, because it is compacted or in the
// future, the cache is filled at the current one.
func (o *ownStream) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	err := o.list(ctx, key, opts, list)
	o.failed.Store(err != nil)
	return err
}

func (o *ownStream) list(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	first := o.first.Swap(nil)
	if first == nil {
		return o.Interface.GetList(ctx, key, opts, list)
	}
	at := opts
	at.ResourceVersion, at.ResourceVersionMatch = *first, metav1.ResourceVersionMatchExact
	err := o.Interface.GetList(ctx, key, at, list)
	switch {
	case apierrors.IsResourceExpired(err) || storage.IsTooLargeResourceVersion(err):
		return o.Interface.GetList(ctx, key, opts, list)
	case err != nil:
		o.first.CompareAndSwap(nil, first) // for the next attempt
	}
	return err
}

// Watch implements storage.Interface.
func (o *ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.RecordTimestamps = opts.RecordTimestamps && !o.recorded
	o.created.Store(nil)
	ctx = context.WithValue(ctx, createdKey{}, func(ctx context.Context) { o.created.Store(&ctx) })
	return o.Interface.Watch(o.context(ctx), key, opts)
}

// RequestWatchProgress implements storage.Interface. The cache repeats the request
// as long as it waits for a version.
func (o *ownStream) RequestWatchProgress(ctx context.Context) error {
	if created := o.created.Load(); created == nil || (*created).Err() != nil {
		return nil
	}
	return o.Interface.RequestWatchProgress(o.context(ctx))
}

func (o *ownStream) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "svc-watch-cache", o.id)
}

// createdKey is the key of the function of a context that reportingWatcher calls.
type createdKey struct{}

// reportingWatcher is etcd's client. It calls the function that the context of a watch
// has at createdKey, with this context, when etcd has created the watch.
type reportingWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher, which returns when etcd has answered.
func (w reportingWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	events := w.Watcher.Watch(ctx, key, opts...)
	if created, ok := ctx.Value(createdKey{}).(func(context.Context)); ok {
		created(ctx)
	}
	return events
}
