package controllers

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// newInformer makes the informers of the shared cache. Their first lists are as
// new as the API server's storage: with the library's default, any state that
// some API server still has in memory, a controller could begin with one older
// than what its predecessor has written.
func newInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(newest{lw, toolscache.ToListerWatcherWithContext(lw)}, example, resync, indexers)
}

// newest lists the newest state where any would do.
type newest struct {
	toolscache.ListerWatcher
	with toolscache.ListerWatcherWithContext
}

// ListWithContext implements toolscache.ListerWithContext.
func (n newest) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	return n.with.ListWithContext(ctx, o)
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (n newest) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return n.with.WatchWithContext(ctx, o)
}
