// Package rewrite owns the response writer of the filters that change bodies.
package rewrite

import (
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Body changes a body that is written in pieces. [gzip.Writer] is one.
type Body interface {
	// WriteCloser writes each piece in its new form. Its Close writes what was held
	// back; it leaves the connection open.
	io.WriteCloser
	// Flush writes as much as possible of what was held back.
	Flush() error
}

// Choose returns what changes the body of a response, or nil if the body stays. It is
// called once, before the header is sent, and may change header. The Body writes to w.
type Choose func(w io.Writer, status int, header http.Header) Body

// Serve has next serve a request, and changes the body of the response. After a panic
// of next the rest of the body is not written: the client sees that it is broken.
func Serve(w http.ResponseWriter, req *http.Request, next http.Handler, choose Choose) {
	r := &response{ResponseWriter: w, choose: choose}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(r), req)
	if r.body != nil {
		// An error means that the connection is broken, which the server notices itself.
		_ = r.body.Close()
	}
}

// response is the writer that next gets.
type response struct {
	http.ResponseWriter
	choose Choose // nil once it was called
	body   Body
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *response) WriteHeader(status int) {
	r.begin(status)
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *response) Write(p []byte) (int, error) {
	r.begin(http.StatusOK)
	if r.body == nil {
		return r.ResponseWriter.Write(p)
	}
	return r.body.Write(p)
}

// Flush implements http.Flusher; it sends a header that was not sent yet.
func (r *response) Flush() {
	r.begin(http.StatusOK)
	if r.body != nil {
		_ = r.body.Flush() // as in Serve
	}
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (r *response) begin(status int) {
	if r.choose == nil {
		return
	}
	choose := r.choose
	r.choose = nil
	if r.body = choose(r.ResponseWriter, status, r.Header()); r.body != nil {
		r.Header().Del("Content-Length")
	}
}
