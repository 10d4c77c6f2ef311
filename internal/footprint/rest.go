package footprint

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

const (
	// burst is the number of collections that make a burst of work. A single one may be
	// that of an idle process, which Go collects every two minutes.
	burst = 2
	// restTime is the time without a collection that ends a burst.
	restTime = 10 * time.Second
)

// Rest calls Shrink after each burst of work, until ctx is done. The garbage collector
// would return what the burst needed only slowly, and the pages of the executable that it
// touched not at all. It is for processes with a small heap: Shrink collects once more.
func Rest(ctx context.Context) {
	collected := make(chan struct{}, 1)
	watchCollections(ctx, collected)
	rest(ctx, collected, func() { shrink(ctx) })
}

// rest calls shrink after each burst of the collections that it receives. shrink makes one
// itself, which does not count.
func rest(ctx context.Context, collected <-chan struct{}, shrink func()) {
	count, calm := 0, time.NewTimer(restTime)
	defer calm.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-collected:
			count++
			calm.Reset(restTime)
		case <-calm.C:
			if count >= burst {
				shrink()
				count = -1
			} else {
				count = 0
			}
		}
	}
}

// shrink calls Shrink. What is left in memory if it fails does no harm.
func shrink(ctx context.Context) {
	if err := Shrink(); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to return memory to the operating system", "err", err)
	}
}
