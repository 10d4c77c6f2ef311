package drain

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

func TestOnlyWatchesEndAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		d := New()
		stopping, stop := context.WithCancel(t.Context())
		go d.Run(stopping, nil, delay, clock.RealClock{})
		watch, get := serve(t, d, "watch"), serve(t, d, "get")
		stop()
		time.Sleep(delay - time.Nanosecond)
		synctest.Wait()
		if watch.Err() != nil {
			t.Error("the watch ended before the delay had passed")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if watch.Err() == nil {
			t.Error("the watch goes on after the delay")
		}
		if get.Err() != nil {
			t.Error("a request that is not a watch was ended")
		}
	})
}

func TestConnectionsEndInTheSecondHalfOfTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		d := New()
		stopping, stop := context.WithCancel(t.Context())
		go d.Run(stopping, nil, delay, clock.RealClock{})
		ends := func(headers http.Header) bool {
			synctest.Wait()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			req.Header = headers
			w := httptest.NewRecorder()
			d.Connections(http.NotFoundHandler()).ServeHTTP(w, req)
			return w.Header().Get("Connection") == "close"
		}
		if ends(nil) {
			t.Error("a request to a server that runs ended its connection")
		}
		stop()
		time.Sleep(delay/2 - time.Nanosecond)
		if ends(nil) {
			t.Error("a request in the first half of the delay ended its connection")
		}
		time.Sleep(longestHold + time.Nanosecond)
		if !ends(nil) {
			t.Error("a request in the second half of the delay did not end its connection")
		}
		if ends(http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}) {
			t.Error("an upgraded connection was ended")
		}
		time.Sleep(delay / 2)
	})
}

func TestRequestsWaitForEachOtherBeforeTheirConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		d := New()
		stopping, stop := context.WithCancel(t.Context())
		go d.Run(stopping, nil, delay, clock.RealClock{})
		answered := func(headers http.Header) *atomic.Bool {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			req.Header = headers
			var done atomic.Bool
			go func() {
				d.Connections(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), req)
				done.Store(true)
			}()
			synctest.Wait()
			return &done
		}
		stop()
		time.Sleep(delay/2 + time.Nanosecond)
		first := answered(nil)
		time.Sleep(longestHold / 2)
		second := answered(nil)
		if first.Load() || second.Load() {
			t.Error("a request was answered, and its connection ended, while others may be on their way")
		}
		if !answered(http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}).Load() {
			t.Error("an upgrade, which does not end its connection, waited")
		}
		time.Sleep(longestHold / 2)
		synctest.Wait()
		if !first.Load() || !second.Load() {
			t.Error("a request waited for longer")
		}
		if !answered(nil).Load() {
			t.Error("a later request waited")
		}
		time.Sleep(delay)
	})
}

func TestAStoppedServerDoesNotWaitForTheDelay(t *testing.T) {
	for rule, stopping := range map[string]bool{"that is stopping": true, "that has failed": false} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := New()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if stopping {
					cancel()
				}
				stopped := make(chan struct{})
				watch := serve(t, d, "watch")
				began := time.Now()
				close(stopped)
				d.Run(ctx, stopped, time.Hour, clock.RealClock{})
				synctest.Wait()
				if waited := time.Since(began); watch.Err() == nil || waited != 0 {
					t.Errorf("the watch ended with %v, after %v", watch.Err(), waited)
				}
			})
		})
	}
}

// serve returns the context of a request that its handler answers until the end
// of the test.
func serve(t *testing.T, d *Drain, verb string) context.Context {
	t.Helper()
	got := make(chan context.Context, 1)
	handler := d.Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		got <- req.Context()
		<-t.Context().Done()
	}))
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: verb})
	go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	return <-got
}
