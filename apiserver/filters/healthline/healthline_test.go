package healthline

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// health answers as the library does: one write for each check, and one for the
// last line.
func health(last string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range []string{"[+]ping ok\n", "[+]etcd ok\n", last} {
			_, _ = io.WriteString(w, line)
		}
	})
}

func TestTheLastLineIsTheSameForAllEndpoints(t *testing.T) {
	const checks = "[+]ping ok\n[+]etcd ok\n"
	for _, test := range []struct{ rule, target, last, want string }{
		{"readyz", "/readyz?verbose", "readyz check passed\n", "healthz check passed\n"},
		{"livez", "/livez?verbose", "livez check passed\n", "healthz check passed\n"},
		{"a value of verbose does not matter", "/readyz?verbose=false", "readyz check passed\n", "healthz check passed\n"},
		{"healthz has it already", "/healthz?verbose", "healthz check passed\n", "healthz check passed\n"},
		{"a failure stays", "/readyz?verbose", "readyz check failed\n", "readyz check failed\n"},
		{"a response that is not verbose stays", "/readyz", "ok", "ok"},
		{"a single check stays", "/readyz/etcd?verbose", "readyz check passed\n", "readyz check passed\n"},
		{"another path stays", "/api?verbose", "readyz check passed\n", "readyz check passed\n"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			w := httptest.NewRecorder()
			Filter(health(test.last)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.target, nil))
			if got := w.Body.String(); got != checks+test.want {
				t.Errorf("got %q, want %q", got, checks+test.want)
			}
		})
	}
}

// io.Writer demands that a write without an error reports all of its bytes.
func TestAReplacedLineIsReportedAsWritten(t *testing.T) {
	const line = "readyz check passed\n"
	handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := io.Copy(w, strings.NewReader(line)); n != int64(len(line)) || err != nil {
			t.Errorf("wrote %d bytes, %v; want %d", n, err, len(line))
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz?verbose", nil))
}
