package storage

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// ownStream is the store below a watch cache. It gives the cache's watch an
// etcd watch stream of its own, and knows whether the cache can be filled.
//
// A cache that is asked for a version that it has not reached requests progress
// of its stream. etcd answers when every watch of the stream is synced and none
// begins at a later revision than the store's current one
// (https://etcd.io/docs/v3.6/learning/api/#watch-streams). A cache that was
// filled at the current revision watches from the next one. On a stream that
// caches share, it would keep progress from all of them until the next write.
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
}

// streams makes the ids of the streams of one client.
type streams struct{ last atomic.Uint64 }

func (s *streams) wrap(store storage.Interface) *ownStream {
	return &ownStream{Interface: store, id: strconv.FormatUint(s.last.Add(1), 10)}
}

// GetList implements storage.Interface. The cache calls it to be filled.
func (o *ownStream) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	err := o.Interface.GetList(ctx, key, opts, list)
	o.failed.Store(err != nil)
	return err
}

// Watch implements storage.Interface.
func (o *ownStream) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.RecordTimestamps = opts.RecordTimestamps && !o.recorded
	return o.Interface.Watch(o.context(ctx), key, opts)
}

// RequestWatchProgress implements storage.Interface.
func (o *ownStream) RequestWatchProgress(ctx context.Context) error {
	return o.Interface.RequestWatchProgress(o.context(ctx))
}

func (o *ownStream) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "svc-watch-cache", o.id)
}
