// Package requests sends HTTP requests at a rate, and counts those that fail.
package requests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Stream is a stream of requests, each with a connection of its own. A request that has no
// answer after a minute has failed.
type Stream struct {
	stop             context.CancelFunc
	running          sync.WaitGroup
	answered, failed atomic.Int64
	mu               sync.Mutex
	first            error // of those that failed
}

// Start begins to send GET requests to a URL at a rate per second, until End. Cancelling
// ctx stops it, too, without an end to the requests under way.
func Start(ctx context.Context, url string, rate int) *Stream {
	ctx, stop := context.WithCancel(ctx)
	l := &Stream{stop: stop}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	l.running.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.running.Go(func() { l.send(context.WithoutCancel(ctx), client, url) })
			}
		}
	})
	return l
}

func (l *Stream) send(ctx context.Context, client *http.Client, url string) {
	err := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		return err
	}()
	if err == nil {
		l.answered.Add(1)
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

// End stops the stream, waits for the answers to what was sent, and returns how many
// requests were answered with 200, and an error if any was not.
func (l *Stream) End() (answered int64, err error) {
	l.stop()
	l.running.Wait()
	if failed := l.failed.Load(); failed > 0 {
		err = fmt.Errorf("%d of %d requests failed, the first one: %w", failed, failed+l.answered.Load(), l.first)
	}
	return l.answered.Load(), err
}
