package alias

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// response translates a response before it is sent.
type response struct {
	http.ResponseWriter
	spelling spelling
	schema   *schemaBody // of the request, if it may hold schemas

	begun bool
	body  translation // nil leaves the body as it is
}

// translation changes a body that is written in pieces.
type translation interface {
	next(piece []byte) []byte
	end() []byte
}

// wrapped returns a writer with the abilities of the next one (Flusher,
// Hijacker), which watches and upgrades need.
func (r *response) wrapped() http.ResponseWriter { return responsewriter.WrapForHTTP1Or2(r) }

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
	if translated := r.body.next(p); len(translated) > 0 {
		if _, err := r.ResponseWriter.Write(translated); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush implements http.Flusher; it sends a header that was not sent yet.
func (r *response) Flush() {
	r.begin(http.StatusOK)
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// begin corrects the header and chooses the translation of the body.
func (r *response) begin(status int) {
	if r.begun {
		return
	}
	r.begun = true
	contentType := r.Header().Get("Content-Type")
	r.spelling.correct(r.Header())
	switch {
	case status == http.StatusNotAcceptable, status == http.StatusUnsupportedMediaType:
		r.body = &replacer{texts: bothProtobufs}
	case r.schema != nil && len(r.schema.used()) > 0:
		r.body = newEcho(r.schema.used(), status, contentType)
	case strings.HasPrefix(contentType, kubeProtobuf):
		if len(r.spelling.apiVersions) > 0 && !strings.Contains(contentType, watched) {
			r.body = &envelope{apiVersions: r.spelling.apiVersions}
		}
	case len(r.spelling.texts) > 0:
		r.body = &replacer{texts: r.spelling.texts}
	}
	if r.body != nil {
		r.Header().Del("Content-Length")
	}
}

// finish writes the rest of the body.
func (r *response) finish() {
	if r.body == nil {
		return
	}
	if rest := r.body.end(); len(rest) > 0 {
		// An error is of the connection, and the server closes that itself.
		_, _ = r.ResponseWriter.Write(rest)
	}
}

// bothProtobufs name svc's media type beside Kubernetes', in the errors that list
// the media types that are supported.
var bothProtobufs = []text{
	{kubeProtobuf, kubeProtobuf + ", " + svcProtobuf},
	{kubeProtobuf + watched, kubeProtobuf + watched + ", " + svcProtobuf + watched},
}

// watched is the parameter of the media types of watches.
const watched = ";stream=watch"

// common are media types of which most requests name one.
var common = []string{"application/json", "*/*", kubeProtobuf, "application/yaml"}

// hasKnownTypes reports whether the request's media types are such that an error
// about them does not list protobuf.
func hasKnownTypes(r *http.Request) bool {
	for _, value := range r.Header["Content-Type"] {
		name, _, _ := strings.Cut(value, ";")
		if !slices.Contains(common, name) && !strings.HasSuffix(name, "-patch+json") && !strings.HasPrefix(name, "application/apply-patch+") {
			return false
		}
	}
	accept := r.Header["Accept"]
	if len(accept) == 0 {
		return true
	}
	for _, value := range accept {
		for clause := range strings.SplitSeq(value, ",") {
			if slices.Contains(common, strings.TrimSpace(clause)) {
				return true
			}
		}
	}
	return false
}
