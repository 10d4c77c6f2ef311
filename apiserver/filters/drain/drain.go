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
	// moving is set when clients are to connect to another server. Requests wait until it
	// is closed.
	moving atomic.Pointer[chan struct{}]
}

// longestHold is how long requests wait before connections end, at most.
const longestHold = 100 * time.Millisecond

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
//
// A request with a body that a client sends while GOAWAY is on its way is lost: the server
// of HTTP/2 ignores it, and a proxy cannot send it again (RFC 9113, section 6.8, lets a
// server announce GOAWAY first; golang.org/x/net/http2 does not). So the requests of the
// first moments of the second half wait for each other: clients that wait for an answer
// send nothing when GOAWAY is sent.
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
	hold, opened := min(longestHold, delay/4), make(chan struct{})
	d.moving.Store(&opened)
	held := wait(stopped, hold, clock)
	close(opened)
	if held {
		wait(stopped, delay-delay/2-hold, clock)
	}
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
// a connection of HTTP/2 by GOAWAY, and no request that the server has read is lost.
func (d *Drain) Connections(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if opened := d.moving.Load(); opened != nil && !httpstream.IsUpgradeRequest(req) {
			select {
			case <-*opened:
			case <-req.Context().Done():
			}
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
