package responselimit

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestAResponseIsReadUpToTheLimit(t *testing.T) {
	const limit = 1000
	for _, test := range []struct {
		rule    string
		request int
		respond func(io.Writer) error
		zipped  bool
		want    string
	}{
		{"a response of the limit", 0, spaces(limit), false, ""},
		{"a longer response", 0, spaces(limit + 1), false, "the response is longer than 1000 bytes"},
		{"a response to a large request", 100, spaces(limit + 400), false, ""},
		{"a longer response to a large request", 100, spaces(limit + 401), false, "the response is longer than 1400 bytes"},
		{"a response that is small only while it is compressed", 0, spaces(1 << 20), true, "the response is longer than 1000 bytes"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				out := io.WriteCloser(nopCloser{w})
				if test.zipped {
					w.Header().Set("Content-Encoding", "gzip")
					out = gzip.NewWriter(w)
				}
				_ = test.respond(out) // the client closes the connection at the limit
				_ = out.Close()
			}))
			defer server.Close()
			client, err := rest.HTTPClientFor(Of(&rest.Config{Host: server.URL}, limit))
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", test.request)))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			content, err := io.ReadAll(resp.Body)
			if got := message(err); got != test.want {
				t.Errorf("read %d bytes and %q, want %q", len(content), got, test.want)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func spaces(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat(" ", n))
		return err
	}
}

type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
