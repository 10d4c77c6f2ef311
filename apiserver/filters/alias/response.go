package alias

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"svc.dev/svc/apiserver/filters/rewrite"
)

// response is what the translation of a response depends on.
type response struct {
	spelling spelling
	schema   *schemaBody // of the request, if it may hold schemas
}

// translate corrects the header of a response and returns what translates its body.
func (r *response) translate(w io.Writer, status int, header http.Header) rewrite.Body {
	contentType := header.Get("Content-Type")
	r.spelling.correct(header)
	if t := r.translation(status, contentType); t != nil {
		return &body{to: w, translation: t}
	}
	return nil
}

// translation returns that of the body of a response, or nil if the body stays.
func (r *response) translation(status int, contentType string) translation {
	switch {
	case status == http.StatusNotAcceptable, status == http.StatusUnsupportedMediaType:
		return &replacer{texts: bothProtobufs}
	case r.schema != nil && len(r.schema.used()) > 0:
		return newEcho(r.schema.used(), status, contentType)
	case strings.HasPrefix(contentType, kubeProtobuf):
		if len(r.spelling.apiVersions) > 0 && !strings.Contains(contentType, watched) {
			return &envelope{apiVersions: r.spelling.apiVersions}
		}
	case len(r.spelling.texts) > 0:
		return &replacer{texts: r.spelling.texts}
	}
	return nil
}

// translation changes a body that is written in pieces.
type translation interface {
	next(piece []byte) []byte
	end() []byte
}

// body is a [rewrite.Body] that translates.
type body struct {
	to io.Writer
	translation
}

// Write implements io.Writer.
func (b *body) Write(p []byte) (int, error) {
	if err := b.write(b.next(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements rewrite.Body: what is held back may be the beginning of what has to
// be translated.
func (b *body) Flush() error { return nil }

// Close implements io.Closer.
func (b *body) Close() error { return b.write(b.end()) }

func (b *body) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := b.to.Write(p)
	return err
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
