package inprocess

import (
	"context"
	"net/http"
	"sync"
)

// Stoppable is a handler whose requests can be ended: otherwise the server's own
// clients would use stores that are closed.
type Stoppable struct {
	handler http.Handler
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex // held so that no request begins while Stop waits
	serving sync.WaitGroup
}

// NewStoppable returns the handler as a Stoppable.
func NewStoppable(handler http.Handler) *Stoppable {
	s := &Stoppable{handler: handler}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ServeHTTP implements http.Handler. After Stop it answers 503.
func (s *Stoppable) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !s.begin() {
		http.Error(w, "the server has stopped", http.StatusServiceUnavailable)
		return
	}
	defer s.serving.Done()
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	s.handler.ServeHTTP(w, req.WithContext(ctx))
}

func (s *Stoppable) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.serving.Add(1)
	return true
}

// Stop cancels the requests in flight and returns when all have ended.
func (s *Stoppable) Stop() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.serving.Wait()
}
