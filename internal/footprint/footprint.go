// Package footprint owns how little memory and processor svc's processes take: it returns what
// only a start or a burst of work needed, paces the garbage collector, sizes stacks, and lets an
// idle process sleep.
package footprint

import (
	"context"
	"runtime/debug"
	"sync"
	"time"
)

// settleTime is the time from a start until what only the start needed is
// garbage.
const settleTime = 10 * time.Second

// Run tunes a process with caches until ctx is done: it calls Limit and Settle, then Pace and Rest.
func Run(ctx context.Context) {
	Limit(ctx)
	Settle(ctx)
	var both sync.WaitGroup
	both.Go(func() { Pace(ctx) })
	both.Go(func() { Rest(ctx) })
	both.Wait()
}

// Settle calls Shrink once, settleTime after it was called, unless ctx ends
// before. The garbage collector would keep the memory in reserve, which an idle
// process never uses.
func Settle(ctx context.Context) {
	select {
	case <-time.After(settleTime):
		shrink(ctx)
	case <-ctx.Done():
	}
}

// Shrink returns free heap to the operating system and unmaps the pages of the
// executable. A start touches four fifths of these, an idle server one fifth;
// pages that are used again are mapped from the page cache. Shrink stops the
// process for some milliseconds.
func Shrink() error {
	debug.FreeOSMemory()
	return unmapBinary()
}
