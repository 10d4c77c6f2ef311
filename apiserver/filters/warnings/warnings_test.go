package warnings

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/warning"
)

// headers returns the warnings of a response to a handler that adds texts.
func headers(t *testing.T, texts ...string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		for _, text := range texts {
			warning.AddWarning(req.Context(), "", text)
		}
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Header()["Warning"]
}

func TestEachTextIsAddedOnce(t *testing.T) {
	got := headers(t, "first", "second", "first", "")
	want := []string{`299 - "first"`, `299 - "second"`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("warnings = %q, want %q", got, want)
	}
}

func TestAHundredLongFieldsAreAllNamed(t *testing.T) {
	var texts []string
	for i := range 100 {
		texts = append(texts, fmt.Sprintf("unknown field %d %s", i, strings.Repeat("é", 300)))
	}
	got, errs := utilnet.ParseWarningHeaders(headers(t, texts...))
	if len(errs) > 0 || len(got) != len(texts) {
		t.Errorf("%d warnings, want %d; errors: %v", len(got), len(texts), errs)
	}
}

func TestManyWarningsShareAFewHeaderLines(t *testing.T) {
	for name, size := range map[string]int{"short": 0, "long": 200} {
		var texts []string
		for i := range 10_000 {
			texts = append(texts, fmt.Sprintf("unknown field %q %s", fmt.Sprint("f", i), strings.Repeat("é", size)))
		}
		lines := headers(t, texts...)
		if len(lines) > 80 {
			t.Errorf("%s: %d header lines", name, len(lines))
		}
		for _, line := range lines {
			if len(line) > maxLine {
				t.Errorf("%s: a line of %d bytes", name, len(line))
			}
		}
		got, errs := utilnet.ParseWarningHeaders(lines)
		if len(errs) > 0 || len(got) < 100 {
			t.Fatalf("%s: %d warnings, errors: %v", name, len(got), errs)
		}
		for i, warning := range got {
			if warning.Text != texts[i] {
				t.Fatalf("%s: warning %d is %q, want %q", name, i, warning.Text, texts[i])
			}
		}
	}
}

func TestTheLengthIsBounded(t *testing.T) {
	var texts []string
	for i := range 1000 {
		texts = append(texts, fmt.Sprintf("%d %s", i, strings.Repeat("x", 10000)))
	}
	total := 0
	for _, header := range headers(t, texts...) {
		total += len(header)
	}
	if total > 2*maxTotal {
		t.Errorf("%d bytes of warnings", total)
	}
}
