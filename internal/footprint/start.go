package footprint

import (
	"context"
	"os"
	"runtime/debug"
)

const (
	// startPercent is the pace of a start: the heap may grow to five times what lives.
	startPercent = 400
	// startHeap bounds the heap, in bytes that live, that grows at this pace: a start with many
	// objects in the database keeps Go's own.
	startHeap = 48 << 20
)

// Start lets the garbage collector run less often until started is called, ctx is done, or
// settleTime has passed: a start allocates several times what lives after it. It does nothing if
// the environment variable GOGC is set: then that is the pace.
func Start(ctx context.Context) (started func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	ended, collected := make(chan struct{}), make(chan struct{}, 1)
	watchCollections(ctx, collected)
	debug.SetGCPercent(startPercent)
	go func() {
		defer close(ended)
		defer debug.SetGCPercent(basePercent)
		for {
			select {
			case <-ctx.Done():
				return
			case <-collected:
				if liveHeap() > startHeap {
					return
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}
