// Package drain owns the end of watches when the server stops: they would last for
// up to an hour, and a stopping server waits for requests in flight.
package drain

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

// Drain ends the watches that pass its filter.
type Drain struct {
	ctx context.Context
	end context.CancelFunc
}

// New returns a Drain. Watches run until its method Run ends them.
func New() *Drain {
	ctx, end := context.WithCancel(context.Background())
	return &Drain{ctx, end}
}

// Run ends the watches when stopping is done and the delay has passed, during
// which the server accepts requests as before (flag --shutdown-delay-duration),
// or when stopped is closed.
func (d *Drain) Run(stopping context.Context, stopped <-chan struct{}, delay time.Duration, clock clock.Clock) {
	defer d.end()
	select {
	case <-stopping.Done():
	case <-stopped:
		return
	}
	timer := clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-stopped:
	}
}

// Filter ends the watches among the requests. Each gets a context of its own,
// not the library's ServerShutdownSignal: when thousands of watches select on
// one channel, each event that wakes one of them takes longer.
func (d *Drain) Filter(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.Verb == "watch" {
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			defer context.AfterFunc(d.ctx, cancel)()
			req = req.WithContext(ctx)
		}
		handler.ServeHTTP(w, req)
	})
}
