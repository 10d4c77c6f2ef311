// Package progress tells the user of a command that an operation is still
// running.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Interval is the time after which the first line is written, and the time
// between two lines.
const Interval = 2 * time.Second

// While runs do and returns its error. Every Interval, until do returns, it
// writes a line to out: what, and the time since the start in seconds.
func While(out io.Writer, clock clock.WithTicker, what string, do func() error) error {
	began := clock.Now()
	finished := make(chan struct{})
	tick := clock.NewTicker(Interval)
	var writing sync.WaitGroup
	writing.Go(func() {
		defer tick.Stop()
		for {
			select {
			case <-tick.C():
				fmt.Fprintf(out, "%s (%s)\n", what, clock.Since(began).Round(time.Second))
			case <-finished:
				return
			}
		}
	})
	err := do()
	close(finished)
	writing.Wait()
	return err
}
