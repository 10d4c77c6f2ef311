package footprint

import (
	"context"
	"runtime/metrics"
	"time"

	"k8s.io/klog/v2"
)

const (
	// restInterval is the time between two looks at the heap.
	restInterval = 3 * time.Second
	// burstBytes and burstPart are what is allocated in such a time, in bytes and as a part of
	// the heap that lives, whichever is more, in a burst of work.
	burstBytes, burstPart = 8 << 20, 16
	// leastRest is the least time between two calls of Shrink, and restShare bounds the part
	// of the time that they take: of a large heap they take longer, and come less often.
	leastRest, restShare = 30 * time.Second, 100
)

// Rest calls Shrink after each burst of work, until ctx is done. The garbage collector would
// leave what the burst allocated last, up to as much as lives, for two minutes, and return it
// only slowly; the pages of the executable that the burst touched it would not return at all.
func Rest(ctx context.Context) {
	rest(ctx, readHeap, func() { shrink(ctx) })
}

// rest calls shrink once the heap, whose state read returns, is calm after a burst.
func rest(ctx context.Context, read func() heap, shrink func()) {
	ticker := time.NewTicker(restInterval)
	defer ticker.Stop()
	last, burst, due := read(), false, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := read()
		busy := now.allocated-last.allocated >= max(burstBytes, now.live/burstPart)
		last, burst = now, burst || busy
		began := time.Now()
		if busy || !burst || began.Before(due) {
			continue
		}
		shrink()
		ended := time.Now()
		last, burst, due = read(), false, ended.Add(max(leastRest, restShare*ended.Sub(began)))
	}
}

// heap is how many bytes a process has allocated in all, and how many survived the last
// garbage collection.
type heap struct{ allocated, live uint64 }

func readHeap() heap {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return heap{allocated: sample[0].Value.Uint64(), live: liveHeap()}
}

// shrink calls Shrink. What is left in memory if it fails does no harm.
func shrink(ctx context.Context) {
	if err := Shrink(); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to return memory to the operating system", "err", err)
	}
}
