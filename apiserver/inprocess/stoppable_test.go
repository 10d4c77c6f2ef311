package inprocess

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
)

func TestStopEndsRequestsInFlightAndRefusesLaterOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		s := NewStoppable(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			ended = true
		}))
		resp := mustGet(t.Context(), t, s.ServeHTTP)
		defer resp.Body.Close()
		s.Stop()
		if !ended {
			t.Error("Stop returned before the handler did")
		}
		if _, err := io.ReadAll(resp.Body); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the body ends with %v", err)
		}
		late := mustGet(t.Context(), t, s.ServeHTTP)
		defer late.Body.Close()
		if late.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a later request got %s", late.Status)
		}
		if _, err := io.ReadAll(late.Body); err != nil {
			t.Error(err)
		}
		s.Stop()
	})
}
