package controllers

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// newInformer returns the function that makes the informers of the shared cache.
// Those of types in selectors, which are named by their Go types, have the selected
// objects only. The first list of an informer is consistent with etcd. The library's default, resource version 0, allows any state
// that an API server has cached: a controller could start with a state older than
// the last writes of the previous leader.
func newInformer(selectors map[string]fields.Selector) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		with := toolscache.ToListerWatcherWithContext(lw)
		return toolscache.NewSharedIndexInformer(consistent{lw, with, selectors[fmt.Sprintf("%T", example)]}, example, resync, indexers)
	}
}

// consistent makes lists with resource version 0 consistent reads.
type consistent struct {
	toolscache.ListerWatcher
	with toolscache.ListerWatcherWithContext
	// selector selects the objects; nil selects all.
	selector fields.Selector
}

// ListWithContext implements toolscache.ListerWithContext.
func (c consistent) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
	return c.with.ListWithContext(ctx, c.selected(o))
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (c consistent) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return c.with.WatchWithContext(ctx, c.selected(o))
}

// selected adds the selector to the options of a list or watch.
func (c consistent) selected(o metav1.ListOptions) metav1.ListOptions {
	if c.selector != nil {
		o.FieldSelector = c.selector.String()
	}
	return o
}
