package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// serveWatches starts a server that answers requests with the pieces, each in its
// own frame, and then waits until the client disconnects.
func serveWatches(t *testing.T, status int, pieces ...string) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(status)
		for _, piece := range pieces {
			if _, err := fmt.Fprint(w, piece); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
		<-req.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
}

func TestWatchersReadEachEventWholeWhereverItIsDivided(t *testing.T) {
	long := strings.Repeat("x", 40<<10) // of several frames
	config := serveWatches(t, http.StatusOK, "first\nsec", "ond\n", long, "\n", "third\nfourth\n")
	w, err := openWatches(t.Context(), config, "/", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	want := []string{"first", "second", long, "third", "fourth"}
	events, n := map[uint32][]string{}, 0
	if err := w.read(func(watch uint32, event []byte) (bool, error) {
		events[watch] = append(events[watch], string(event))
		n++
		return n < 3*len(want), nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(events) != 3 {
		t.Errorf("%d watches have events", len(events))
	}
	for watch, got := range events {
		if !slices.Equal(got, want) {
			t.Errorf("watch %d: %.200q", watch, got)
		}
	}
}

func TestAWatchThatIsRefusedIsAnError(t *testing.T) {
	w, err := openWatches(t.Context(), serveWatches(t, http.StatusForbidden, "no\n"), "/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := w.read(func(uint32, []byte) (bool, error) { return true, nil }); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("%v", err)
	}
}
