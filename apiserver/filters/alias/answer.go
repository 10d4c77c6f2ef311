package alias

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// answerAsAsked makes the answer's content type svc's. The returned writer has
// the abilities of w (Flusher, Hijacker), which watches and upgrades need.
func answerAsAsked(w http.ResponseWriter) http.ResponseWriter {
	return responsewriter.WrapForHTTP1Or2(&answer{ResponseWriter: w})
}

// answer corrects the content type before the header leaves.
type answer struct {
	http.ResponseWriter
	sent bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.correct()
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.correct()
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher; it sends a header that was not sent yet.
func (a *answer) Flush() {
	a.correct()
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (a *answer) correct() {
	if a.sent {
		return
	}
	a.sent = true
	if rest, ok := strings.CutPrefix(a.Header().Get("Content-Type"), kubeProtobuf); ok {
		a.Header().Set("Content-Type", svcProtobuf+rest)
	}
}
