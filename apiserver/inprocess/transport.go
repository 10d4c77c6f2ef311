// Package inprocess owns the requests of the server's own clients, which reach its
// handlers without a connection, TLS or the serialization of HTTP.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"
)

// Transport is a RoundTripper whose server is a handler in the same process.
// Streaming (watches) works; upgrades do not.
type Transport struct {
	Handler http.Handler
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	body, out := io.Pipe()
	w := &response{header: http.Header{}, out: out, ready: make(chan struct{}), gone: ctx.Done()}
	served := req.Clone(ctx)
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI = req.URL.RequestURI()
	served.RemoteAddr = "127.0.0.1:0"
	go t.serve(w, served)

	select {
	case <-w.ready:
	case <-ctx.Done():
		cancel()
		// There is no reader: further writes of the handler must not wait for one.
		_ = out.CloseWithError(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	// Closed at the writer's end, so that the reader gets the cause.
	stop := context.AfterFunc(ctx, func() { _ = out.CloseWithError(context.Cause(ctx)) })
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.sent,
		Body:          &responseBody{PipeReader: body, done: func() { stop(); cancel() }},
		ContentLength: -1,
		Request:       req,
	}, nil
}

func (t Transport) serve(w *response, req *http.Request) {
	defer func() {
		_ = req.Body.Close()
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				klog.FromContext(req.Context()).Error(nil, "Recovered from panic of in-process request handler", "path", req.URL.Path, "panic", r, "stack", string(debug.Stack()))
			}
			w.WriteHeader(http.StatusInternalServerError)
			_ = w.out.CloseWithError(fmt.Errorf("the handler of %s panicked: %v", req.URL.Path, r))
			return
		}
		w.WriteHeader(http.StatusOK)
		// Ends the body, with an error if the request was cancelled.
		_ = w.out.CloseWithError(context.Cause(req.Context()))
	}()
	t.Handler.ServeHTTP(w, req)
}

// responseBody cancels the request when it is closed.
type responseBody struct {
	*io.PipeReader
	done func()
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	b.done()
	return b.PipeReader.Close()
}

// response implements http.ResponseWriter over a pipe.
type response struct {
	header http.Header
	out    *io.PipeWriter
	gone   <-chan struct{}

	once   sync.Once
	ready  chan struct{}
	status int
	sent   http.Header
}

var (
	_ http.Flusher = &response{}
	//nolint:staticcheck // the response writers of k8s.io/apiserver ask for it.
	_ http.CloseNotifier = &response{}
)

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	w.once.Do(func() {
		w.status = status
		w.sent = w.header.Clone()
		close(w.ready)
	})
}

// Write implements http.ResponseWriter. It returns [context.Canceled] when the client
// has cancelled its request or closed the body.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	n, err := w.out.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = context.Canceled
	}
	return n, err
}

// Flush implements http.Flusher. Written bytes are delivered already.
func (w *response) Flush() { w.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	c := make(chan bool, 1)
	go func() {
		<-w.gone
		c <- true
	}()
	return c
}
