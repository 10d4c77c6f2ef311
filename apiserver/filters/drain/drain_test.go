package drain

import (
	"context"
	"net/http"
	"net/http/httptest"
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
