// Package warnings owns the Warning headers of responses: a value for each warning that
// was added to the request's context.
package warnings

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/warning"
)

const (
	// maxWhole is the length of all warnings of a response up to which none is
	// truncated, and maxItem the length of each warning after that, in runes.
	maxWhole = 4 << 10
	maxItem  = 256
	// maxTotal bounds the length of all warnings of a response, in runes. The library
	// stops at 4096, which is too few for the 100 unknown and duplicate fields that a
	// decoder reports: each has its warning (document 1, section 4).
	maxTotal = 32 << 10
	// maxLines is the number of warnings with a header line each. Clients refuse many
	// lines: Python's http.client takes a hundred in all. Further warnings are values of
	// the last line, or of a new one after maxLine bytes.
	maxLines = 50
	maxLine  = 8 << 10
)

// Filter makes the warnings that next and its callees add to the request's context
// headers of the response.
func Filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req.WithContext(warning.WithWarningRecorder(req.Context(), &recorder{header: w.Header()})))
	})
}

// recorder adds headers.
type recorder struct {
	header http.Header

	mu      sync.Mutex
	added   map[string]bool
	written int // in runes
}

// AddWarning implements warning.Recorder. It adds each text once.
func (r *recorder) AddWarning(agent, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" || r.added[text] {
		return
	}
	if r.added == nil {
		r.added = map[string]bool{}
	}
	r.added[text] = true
	limit := maxWhole
	runes := []rune(text)
	if r.written+len(runes) > maxWhole {
		limit = maxItem
	}
	runes = runes[:min(len(runes), limit)]
	if r.written+len(runes) > maxTotal {
		return
	}
	header, err := net.NewWarningHeader(299, agent, string(runes))
	if err != nil {
		return // the text is not one for a header; there is no other place for it
	}
	r.written += len(runes)
	lines := r.header["Warning"]
	if last := len(lines) - 1; last+1 >= maxLines && len(lines[last])+len(header) < maxLine {
		lines[last] += ", " + header
		return
	}
	r.header["Warning"] = append(lines, header)
}
