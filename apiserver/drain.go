package apiserver

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// ending tells watches that the server stops. They would go on for up to an
// hour, and the server waits for the requests that it has begun to answer.
type ending struct {
	ctx context.Context
	end context.CancelFunc
}

func newEnding() *ending {
	ctx, end := context.WithCancel(context.Background())
	return &ending{ctx, end}
}

// follow ends the watches when ctx is done and delay is over, during which the
// server goes on as before (flag --shutdown-delay-duration).
func (e *ending) follow(ctx context.Context, delay time.Duration) {
	context.AfterFunc(ctx, func() { time.AfterFunc(delay, e.end) })
}

// filter makes the watches among the requests listen. Each has a context of its
// own to listen to, not the library's ServerShutdownSignal: a channel on which
// thousands of watches wait takes time with every event that wakes one of them.
func (e *ending) filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			defer context.AfterFunc(e.ctx, cancel)()
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}
