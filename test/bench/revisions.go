package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// revisions measures the time until a watch delivers the revisions of objects.
type revisions struct {
	end     context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	pending map[int64]time.Time
	times   []time.Duration
	err     error
}

// watchRevisions starts a watch of a collection from now on. The caller stops it.
func watchRevisions(ctx context.Context, c *client, path string) (*revisions, error) {
	now, err := c.open(ctx, request{method: http.MethodGet, path: path + "?limit=1"})
	if err != nil {
		return nil, err
	}
	defer now.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.NewDecoder(now).Decode(&list); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	body, err := c.open(ctx, request{method: http.MethodGet, path: path + "?watch=true&resourceVersion=" + list.Metadata.ResourceVersion})
	if err != nil {
		cancel()
		return nil, err
	}
	r := &revisions{end: cancel, pending: map[int64]time.Time{}}
	r.reading.Go(func() {
		defer body.Close()
		reader := bufio.NewReaderSize(body, 1<<20)
		for {
			event, err := reader.ReadSlice('\n')
			now := time.Now()
			var written int64
			if err == nil {
				written, err = revision(event)
			}
			r.mu.Lock()
			if sent, found := r.pending[written]; found {
				delete(r.pending, written)
				r.times = append(r.times, now.Sub(sent))
			}
			r.err = err
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return r, nil
}

// sent returns a new revision for a write, and records when it was sent.
func (r *revisions) sent() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.pending[now.UnixNano()] = now
	return now.UnixNano()
}

// wait waits until all revisions have been seen, and returns how long each took,
// sorted.
func (r *revisions) wait(most time.Duration) ([]time.Duration, error) {
	for end := time.Now().Add(most); ; time.Sleep(pollPeriod) {
		r.mu.Lock()
		pending, err := len(r.pending), r.err
		if pending == 0 {
			slices.Sort(r.times)
			defer r.mu.Unlock()
			return r.times, nil
		}
		r.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("the watch ended: %w", err)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d events have not come %s after the last write", pending, most)
		}
	}
}

func (r *revisions) stop() {
	r.end()
	r.reading.Wait()
}
