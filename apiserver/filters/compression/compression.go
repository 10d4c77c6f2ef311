// Package compression owns the compression of the responses to get and list for
// clients that accept it (document 1, section 4). The library compresses only
// responses of more than 128 KiB.
package compression

import (
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/filters/rewrite"
)

// level is the fastest; the higher ones save little of JSON and cost much.
const level = gzip.BestSpeed

func newGzipWriter() any {
	// The error is that of an unknown level.
	w, _ := gzip.NewWriterLevel(nil, level)
	return w
}

// Filter compresses the objects that next responds with to get and list. Next does
// not see the header Accept-Encoding of such requests. What is proxied is between the
// client and the pod, service or node.
func Filter(next http.Handler) http.Handler {
	compressed := Always(next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Subresource == "proxy" || info.Verb != "get" && info.Verb != "list" {
			next.ServeHTTP(w, req)
			return
		}
		compressed.ServeHTTP(w, req)
	})
}

// Always is Filter for a handler of get and list only, which needs no request info.
func Always(next http.Handler) http.Handler {
	writers := &sync.Pool{New: newGzipWriter}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !AcceptsGzip(req.Header) {
			next.ServeHTTP(w, req)
			return
		}
		inner := req.WithContext(req.Context())
		inner.Header = maps.Clone(req.Header)
		delete(inner.Header, "Accept-Encoding")
		rewrite.Serve(w, inner, next, func(w io.Writer, status int, header http.Header) rewrite.Body {
			return compress(w, status, header, writers)
		})
	})
}

// AcceptsGzip reports whether the Accept-Encoding of a request allows gzip (RFC 9110,
// section 12.5.3).
func AcceptsGzip(header http.Header) bool {
	for _, value := range header["Accept-Encoding"] {
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

// compress returns a compressor if a response is an object. Other bodies, such as logs,
// are not compressed. writers holds *gzip.Writer.
func compress(w io.Writer, status int, header http.Header, writers *sync.Pool) rewrite.Body {
	if status != http.StatusOK || header.Get("Content-Encoding") != "" || !isObject(header.Get("Content-Type")) {
		return nil
	}
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	compressor := writers.Get().(*gzip.Writer)
	compressor.Reset(w)
	return pooled{Writer: compressor, pool: writers}
}

// pooled is a compressor that returns to its pool when it is closed.
type pooled struct {
	*gzip.Writer
	pool *sync.Pool
}

// Close implements io.Closer.
func (p pooled) Close() error {
	err := p.Writer.Close()
	p.Reset(nil)
	p.pool.Put(p.Writer)
	return err
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
