package apiserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// ending tells watches that the server stops. They would go on for up to an
// hour, and the server waits for the requests that it has begun to answer.
type ending struct {
	done chan struct{}
	once sync.Once
}

func newEnding() *ending { return &ending{done: make(chan struct{})} }

// ShuttingDown implements request.ServerShutdownSignal.
func (e *ending) ShuttingDown() <-chan struct{} { return e.done }

// follow ends the watches when ctx is done and delay is over, during which the
// server goes on as before (flag --shutdown-delay-duration).
func (e *ending) follow(ctx context.Context, delay time.Duration) {
	context.AfterFunc(ctx, func() {
		time.AfterFunc(delay, func() { e.once.Do(func() { close(e.done) }) })
	})
}

// filter makes the watches among the requests listen.
func (e *ending) filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			req = req.WithContext(request.WithServerShutdownSignal(req.Context(), e))
		}
		handler.ServeHTTP(w, req)
	})
}
