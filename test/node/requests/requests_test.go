package requests

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// stream sends requests to a server, which answers with a status, until it has got many more
// than are under way at the same time.
func stream(t *testing.T, status int, keepAlive bool) (r Result, served, connections int64, err error) {
	t.Helper()
	var requests, opened atomic.Int64
	enough := make(chan struct{})
	once := sync.OnceFunc(func() { close(enough) })
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		if requests.Add(1) == 5*atOnce {
			once()
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	l := Start(t.Context(), server.URL, 10_000, keepAlive)
	<-enough
	r, err = l.End()
	return r, requests.Load(), opened.Load(), err
}

func TestStreamCountsAnswersAndFailures(t *testing.T) {
	for _, keepAlive := range []bool{false, true} {
		r, served, connections, err := stream(t, http.StatusOK, keepAlive)
		if err != nil || r.Answered != served || r.Failed != 0 || r.Rate <= 0 {
			t.Errorf("keep-alive %t: %v of %d, %v", keepAlive, r, served, err)
		}
		if each := connections >= served; each == keepAlive {
			t.Errorf("keep-alive %t: %d connections for %d requests", keepAlive, connections, served)
		}
		r, served, _, err = stream(t, http.StatusServiceUnavailable, keepAlive)
		if r.Answered != 0 || r.Failed != served || err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("keep-alive %t: %v of %d, %v", keepAlive, r, served, err)
		}
	}
}

func TestStreamOfNoRequestsFails(t *testing.T) {
	if r, err := Start(t.Context(), "http://127.0.0.1:1/", 1, false).End(); err == nil {
		t.Errorf("%v", r)
	}
}
