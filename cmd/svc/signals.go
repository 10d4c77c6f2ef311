package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// sameSignal is the time within which two signals count as one: timeout(1), for
// example, sends its signal to the process and to the process group.
const sameSignal = 100 * time.Millisecond

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. A
// second one ends the process at once, with the exit code that a shell gives to
// what a signal has ended.
func untilSignal(parent context.Context, errOut io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		var first time.Time
		for s := range signals {
			if first.IsZero() {
				first = time.Now()
				cancel()
			} else if second, ok := s.(syscall.Signal); ok && time.Since(first) > sameSignal {
				fmt.Fprintf(errOut, "svc: %v again: stopped at once\n", second)
				os.Exit(128 + int(second))
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
		waiting.Wait()
	}
}
