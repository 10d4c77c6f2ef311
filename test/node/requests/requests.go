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

// atOnce is how many requests of a stream are under way at the same time, at most: a machine
// that cannot answer as many as are sent is not sent more and more.
const atOnce = 200

// Stream is a stream of requests. A request that has no answer after a minute has failed.
type Stream struct {
	stop             context.CancelFunc
	began            time.Time
	running          sync.WaitGroup
	answered, failed atomic.Int64
	mu               sync.Mutex
	first            error // of those that failed
}

// Start begins to send GET requests to a URL at a rate per second, until End: each by a
// connection of its own or, with keepAlive, by connections that stay open. What the machine was
// too busy to send is sent as soon as it can. Cancelling ctx stops it, too, without an end to
// the requests under way.
func Start(ctx context.Context, url string, rate int, keepAlive bool) *Stream {
	ctx, stop := context.WithCancel(ctx)
	l := &Stream{stop: stop, began: time.Now()}
	transport := &http.Transport{DisableKeepAlives: !keepAlive, MaxIdleConnsPerHost: atOnce}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	l.running.Go(func() {
		var sending sync.WaitGroup
		defer transport.CloseIdleConnections()
		defer sending.Wait()
		tick := time.NewTicker(max(time.Second/time.Duration(rate), 5*time.Millisecond))
		defer tick.Stop()
		slots := make(chan struct{}, atOnce)
		for sent := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int(time.Since(l.began).Seconds() * float64(rate)); sent < due && ctx.Err() == nil; sent++ {
				slots <- struct{}{}
				sending.Go(func() {
					defer func() { <-slots }()
					l.send(context.WithoutCancel(ctx), client, url)
				})
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

// Result is what became of the requests of a stream.
type Result struct {
	Answered, Failed int64
	// Rate is how many were answered a second.
	Rate float64
}

// String implements fmt.Stringer.
func (r Result) String() string {
	return fmt.Sprintf("%d answered, %.0f a second, %d failed", r.Answered, r.Rate, r.Failed)
}

// End stops the stream, waits for the answers to what was sent, and returns how many requests
// were answered with 200, and an error if any was not, or none was sent.
func (l *Stream) End() (Result, error) {
	l.stop()
	l.running.Wait()
	r := Result{Answered: l.answered.Load(), Failed: l.failed.Load()}
	r.Rate = float64(r.Answered) / time.Since(l.began).Seconds()
	switch {
	case r.Failed > 0:
		return r, fmt.Errorf("%s, the first one: %w", r, l.first)
	case r.Answered == 0:
		return r, fmt.Errorf("no request was sent in %v", time.Since(l.began))
	}
	return r, nil
}
