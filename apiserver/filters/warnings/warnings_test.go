package warnings

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	if got := headers(t, texts...); len(got) != len(texts) {
		t.Errorf("%d warnings, want %d", len(got), len(texts))
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
