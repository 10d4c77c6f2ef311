package footprint

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// basePercent is Go's own pace: the heap may double between collections.
	basePercent = 100
	// mostPercent bounds how far a small heap may grow.
	mostPercent = 400
	// headroom is what a busy server may allocate between two collections, in
	// bytes, even if little of its heap is alive.
	headroom = 128 << 20
	// busyInterval is the time between two collections under which the server
	// counts as busy.
	busyInterval = 2 * time.Second
)

// Pace lets the garbage collector run less often while the server is busy and
// its heap is small, until ctx is done. A server with a heap of 30 MB would
// otherwise collect several times a second under load, which takes a tenth of
// the processor time. An idle server keeps Go's own pace, so that it holds no
// garbage. A start has to keep it, too: what lives after it would otherwise be spread
// over a heap of 128 MB, of which only pages without objects return to the system. So
// Pace is called after Settle. It does nothing if the environment variable GOGC is set:
// then that is the pace.
func Pace(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	collected := make(chan struct{}, 1)
	watchCollections(ctx, collected)
	percent, last := basePercent, time.Now()
	for {
		select {
		case <-ctx.Done():
			debug.SetGCPercent(basePercent)
			return
		case <-collected:
			now := time.Now()
			if wanted := pace(now.Sub(last), liveHeap()); wanted != percent {
				percent = wanted
				debug.SetGCPercent(percent)
			}
			last = now
		}
	}
}

// pace is the percentage for a heap of which live bytes survived a collection
// that came so long after the one before.
func pace(since time.Duration, live uint64) int {
	if since > busyInterval || live == 0 {
		return basePercent
	}
	return int(min(max(headroom*100/live, basePercent), mostPercent))
}

// watchCollections sends a token after every garbage collection: each one runs
// the cleanup of an unreachable object, which creates the next such object.
func watchCollections(ctx context.Context, collected chan<- struct{}) {
	if ctx.Err() != nil {
		return
	}
	runtime.AddCleanup(new([64]byte), func(struct{}) {
		watchCollections(ctx, collected) // before the token is sent: its receiver may start a collection
		select {
		case collected <- struct{}{}:
		default:
		}
	}, struct{}{})
}

func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
