// Package footprint gives back what only a server's start needed.
package footprint

import (
	"context"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
)

// settleTime is how long a start takes until what only it needed is garbage.
const settleTime = 10 * time.Second

// Settle gives the memory of a start that has just been made back to the
// machine, once. The collector would keep it for a growth that an idle process
// never sees.
func Settle(ctx context.Context) {
	select {
	case <-time.After(settleTime):
		if err := Shrink(); err != nil {
			klog.FromContext(ctx).V(2).Info("The memory of the start was not given back", "err", err)
		}
	case <-ctx.Done():
	}
}

// Shrink returns to the machine the heap that is free, and unmaps the pages of
// the binary, of which the start touches four fifths and an idle server one
// fifth: what is used again is mapped again, from the page cache. It stops the
// process for some milliseconds, so it is for once after the start.
func Shrink() error {
	debug.FreeOSMemory()
	return unmapBinary()
}
