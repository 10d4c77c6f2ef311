// Package compression owns the compression of the responses to get and list for
// clients that accept it (document 1, section 4). The library compresses only
// responses of more than 128 KiB.
package compression

import (
	"compress/gzip"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// level is the fastest; the higher ones save little of JSON and cost much.
const level = gzip.BestSpeed

func newGzipWriter() any {
	// The error is that of an unknown level.
	w, _ := gzip.NewWriterLevel(nil, level)
	return w
}

// Filter compresses the objects that next responds with to get and list. Next does
// not see the header Accept-Encoding of such requests.
func Filter(next http.Handler) http.Handler {
	writers := &sync.Pool{New: newGzipWriter}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "get" && info.Verb != "list" || !acceptsGzip(req.Header["Accept-Encoding"]) {
			next.ServeHTTP(w, req)
			return
		}
		inner := req.WithContext(req.Context())
		inner.Header = maps.Clone(req.Header)
		delete(inner.Header, "Accept-Encoding")
		compressed := &writer{ResponseWriter: w, status: http.StatusOK, pool: writers}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(compressed), inner)
		compressed.finish()
	})
}

// acceptsGzip reports whether an Accept-Encoding header allows gzip (RFC 9110,
// section 12.5.3).
func acceptsGzip(values []string) bool {
	for _, value := range values {
		for coding := range strings.SplitSeq(value, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return !isZero(weight)
			}
		}
	}
	return false
}

// isZero reports whether a parameter is a weight of 0.
func isZero(parameter string) bool {
	key, value, found := strings.Cut(strings.TrimSpace(parameter), "=")
	weight, err := strconv.ParseFloat(value, 64)
	return found && strings.EqualFold(key, "q") && err == nil && weight == 0
}

// writer compresses objects. It does not change other bodies, such as logs.
type writer struct {
	http.ResponseWriter
	status int
	begun  bool
	gzip   *gzip.Writer // nil unless the body is compressed
	pool   *sync.Pool   // of *gzip.Writer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.status = status
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	header := w.Header()
	if w.status != http.StatusOK || header.Get("Content-Encoding") != "" || !isObject(header.Get("Content-Type")) {
		return
	}
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	header.Del("Content-Length")
	w.gzip = w.pool.Get().(*gzip.Writer)
	w.gzip.Reset(w.ResponseWriter)
}

// isObject reports whether a content type is one of objects.
func isObject(contentType string) bool {
	name, _, _ := strings.Cut(contentType, ";")
	switch name {
	case "application/json", "application/yaml", "application/vnd.kubernetes.protobuf":
		return true
	}
	return false
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	if w.gzip != nil {
		return w.gzip.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	if w.gzip != nil {
		// An error means that the client has closed the connection.
		_ = w.gzip.Flush()
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// finish writes the end of the compressed body. After a panic it is not called: the
// client sees that the body is broken.
func (w *writer) finish() {
	if w.gzip == nil {
		return
	}
	_ = w.gzip.Close() // as in Flush
	w.gzip.Reset(nil)
	w.pool.Put(w.gzip)
	w.gzip = nil
}
