package original

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// appending returns a filter that appends to a header, and its undo.
func appending(next http.Handler, suffix string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		before := req.Header.Get("Accept")
		req = Copy(req, func(sent *http.Request) { sent.Header.Set("Accept", before) })
		req.Header.Set("Accept", before+suffix)
		next.ServeHTTP(w, req)
	})
}

func TestTheRewritingOfAllFiltersIsUndoneForAProxiedRequest(t *testing.T) {
	for _, test := range []struct {
		proxied bool
		want    string
	}{{true, "a"}, {false, "a-b-c"}} {
		var got, path string
		handler := Restore(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got, path = req.Header.Get("Accept"), req.URL.Path }),
			func(*http.Request) bool { return test.proxied })
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/path", nil)
		req.Header.Set("Accept", "a")
		appending(appending(handler, "-c"), "-b").ServeHTTP(httptest.NewRecorder(), req)
		if got != test.want || path != "/path" {
			t.Errorf("proxied: %t: the handler of %s got %q, want %q", test.proxied, path, got, test.want)
		}
		if sent := req.Header.Get("Accept"); sent != "a" {
			t.Errorf("the client's request became %q", sent)
		}
	}
}

func TestARequestThatNoFilterRewroteIsPassedAsItIs(t *testing.T) {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	Restore(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		if got != req {
			t.Error("the request was copied")
		}
	}), func(*http.Request) bool { t.Error("proxied was called"); return true }).ServeHTTP(httptest.NewRecorder(), req)
}
