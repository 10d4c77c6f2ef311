package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// newInformer returns an informer of the shared cache, whose first list is
// consistent with etcd. The library's default, resource version 0, allows any state
// that an API server has cached: a controller could start with a state older than
// the last writes of the previous leader.
func newInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(consistent{lw, toolscache.ToListerWatcherWithContext(lw)}, example, resync, indexers)
}

// consistent makes lists with resource version 0 consistent reads.
type consistent struct {
	toolscache.ListerWatcher
	with toolscache.ListerWatcherWithContext
}

// ListWithContext implements toolscache.ListerWithContext.
func (c consistent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	return c.with.ListWithContext(ctx, o)
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (c consistent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return c.with.WatchWithContext(ctx, o)
}
