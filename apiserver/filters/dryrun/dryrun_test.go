package dryrun

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"svc.dev/svc/apiserver/filters/original"
)

func TestAnEmptyDryRunIsRemoved(t *testing.T) {
	for query, want := range map[string]string{
		"":                 "",
		"dryRun":           "",
		"dryRun=":          "",
		"dryRun&pretty":    "pretty=",
		"dryRun=All":       "dryRun=All",
		"dryRun=&dryRun=x": "dryRun=&dryRun=x",
		"dryRun=%zz":       "dryRun=%zz",
		"limit=5":          "limit=5",
	} {
		t.Run(query, func(t *testing.T) {
			var got string
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.URL.RawQuery }))
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/n/configmaps?"+query, nil)
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if got != want {
				t.Errorf("the query became %q, want %q", got, want)
			}
		})
	}
}

func TestTheQueryOfAProxiedRequestIsThatOfTheClient(t *testing.T) {
	for _, query := range []string{"dryRun=", "b&dryRun=&a=%20"} {
		for _, proxied := range []bool{true, false} {
			var got string
			handler := Filter(original.Restore(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.URL.RawQuery }), func(*http.Request) bool { return proxied }))
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?"+query, nil))
			if (got == query) != proxied {
				t.Errorf("the query %q became %q, proxied: %t", query, got, proxied)
			}
		}
	}
}
