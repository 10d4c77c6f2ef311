package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"svc.dev/svc/test/node/requests"
)

// load is the stream of requests that the server sends, if any.
type load struct {
	mu     sync.Mutex
	stream *requests.Stream
}

func (l *load) start(w http.ResponseWriter, r *http.Request) {
	rate, err := strconv.Atoi(r.FormValue("rate"))
	if err != nil || rate <= 0 || r.FormValue("url") == "" {
		http.Error(w, "url is required, and rate must be a number above 0", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil {
		http.Error(w, "requests are being sent: DELETE /load stops them", http.StatusConflict)
		return
	}
	l.stream = requests.Start(context.WithoutCancel(r.Context()), r.FormValue("url"), rate, r.FormValue("keepalive") == "true")
}

func (l *load) end(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream == nil {
		http.Error(w, "no requests are being sent", http.StatusConflict)
		return
	}
	result, err := l.stream.End()
	l.stream = nil
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, result)
}
