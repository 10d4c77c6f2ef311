// Package drain owns the end of connections and of watches when the server stops: watches
// would last for up to an hour, and a stopping server waits for requests in flight.
package drain

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"
)

// Drain ends the watches that pass its filter, and the connections of the requests that
// pass Connections.
type Drain struct {
	ctx context.Context
	end context.CancelFunc
	// moving is set when clients are to connect to another server.
	moving atomic.Bool
}

// New returns a Drain. Watches run until its method Run ends them.
func New() *Drain {
	ctx, end := context.WithCancel(context.Background())
	return &Drain{ctx: ctx, end: end}
}

// Run ends the watches when stopping is done and the delay has passed, during
// which the server accepts requests as before (flag --shutdown-delay-duration),
// or when stopped is closed. Load balancers have the first half of the delay to send new
// connections elsewhere. In the second half each request ends its connection: one that is
// in use when the delay ends would have its requests refused.
func (d *Drain) Run(stopping context.Context, stopped <-chan struct{}, delay time.Duration, clock clock.Clock) {
	defer d.end()
	select {
	case <-stopping.Done():
	case <-stopped:
		return
	}
	if !wait(stopped, delay/2, clock) {
		return
	}
	d.moving.Store(true)
	wait(stopped, delay-delay/2, clock)
}

// wait reports whether the duration has passed before stopped was closed.
func wait(stopped <-chan struct{}, duration time.Duration, clock clock.Clock) bool {
	timer := clock.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-stopped:
		return false
	}
}

// Connections lets each request end its connection after its response, once Run says so:
// a connection of HTTP/2 by GOAWAY, and no request in flight on it is lost.
func (d *Drain) Connections(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if d.moving.Load() && !httpstream.IsUpgradeRequest(req) {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
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
