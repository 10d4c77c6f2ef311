// Package compression owns the compression of the responses to get and list for
// clients that accept it (document 1, section 4). The library compresses only
// responses of more than 128 KiB.
package compression

import (
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/filters/rewrite"
	"svc.dev/svc/apiserver/itemcache"
)

// Filter compresses the objects that next responds with to get and list. Next does
// not see the header Accept-Encoding of such requests. What is proxied is between the
// client and the pod, service or node. items has the pieces of lists that were
// compressed before; nil for none.
func Filter(next http.Handler, items *itemcache.Cache) http.Handler {
	compressed := filter{next, items}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Subresource == "proxy" || info.Verb != "get" && info.Verb != "list" {
			next.ServeHTTP(w, req)
			return
		}
		compressed.ServeHTTP(w, req)
	})
}

// Always is Filter for a handler of get and list only, which needs no request info. It
// compresses every response.
func Always(next http.Handler) http.Handler { return filter{next, nil} }

type filter struct {
	next  http.Handler
	items *itemcache.Cache
}

// ServeHTTP implements http.Handler.
func (f filter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !AcceptsGzip(req.Header) {
		f.next.ServeHTTP(w, req)
		return
	}
	inner := req.WithContext(req.Context())
	inner.Header = maps.Clone(req.Header)
	delete(inner.Header, "Accept-Encoding")
	rewrite.Serve(w, inner, f.next, f.compress)
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
// are not compressed.
func (f filter) compress(w io.Writer, status int, header http.Header) rewrite.Body {
	if status != http.StatusOK || header.Get("Content-Encoding") != "" || !isObject(header.Get("Content-Type")) {
		return nil
	}
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	return newMember(w, f.items)
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
