// Package original owns what filters have rewritten of requests for the handlers of this
// server: a server that a request is proxied to gets it as the client has sent it.
package original

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// undoKey is the key of a request's undo functions in its context.
type undoKey struct{}

func undoOf(req *http.Request) []func(*http.Request) {
	undo, _ := req.Context().Value(undoKey{}).([]func(*http.Request))
	return undo
}

// Copy returns a copy of the request with headers and a URL of its own, for a filter to
// rewrite. undo must undo that in a later copy, but not what other filters have changed
// in between.
func Copy(req *http.Request, undo func(*http.Request)) *http.Request {
	return copyOf(req, context.WithValue(req.Context(), undoKey{}, append(slices.Clip(undoOf(req)), undo)))
}

func copyOf(req *http.Request, ctx context.Context) *http.Request {
	copied := req.WithContext(ctx)
	copied.Header = maps.Clone(req.Header)
	url := *req.URL
	copied.URL = &url
	return copied
}

// Of returns the request as it was before filters rewrote it.
func Of(req *http.Request) *http.Request {
	undo := undoOf(req)
	if len(undo) == 0 {
		return req
	}
	sent := copyOf(req, req.Context())
	for _, u := range slices.Backward(undo) {
		u(sent)
	}
	return sent
}

// Restore passes the originals of requests that proxied reports to next. It calls
// proxied only for rewritten requests.
func Restore(next http.Handler, proxied func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(undoOf(req)) > 0 && proxied(req) {
			req = Of(req)
		}
		next.ServeHTTP(w, req)
	})
}
