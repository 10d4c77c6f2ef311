package mediatype

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"svc.dev/svc/apiserver/filters/original"
)

func filtered(t *testing.T, name string, values ...string) []string {
	t.Helper()
	var got []string
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.Header[name] }))
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header[name] = values
	handler.ServeHTTP(httptest.NewRecorder(), req)
	return got
}

func TestAccept(t *testing.T) {
	const all = "application/json,application/yaml,application/vnd.kubernetes.protobuf"
	for _, tc := range []struct {
		rule string
		in   []string
		want string
	}{
		{"a plain header stays", []string{"application/json, */*"}, "application/json, */*"},
		{"the values of parameters stay", []string{"application/json;as=Table;v=v1;g=meta.k8s.io"}, "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"types are in lower case, parameters' values as they are", []string{"Application/JSON;AS=Table;v=v1"}, "application/json;as=Table;v=v1"},
		{"a range of a type is the types offered", []string{"application/*"}, all},
		{"parameters go with each of them", []string{"application/*;as=Table"}, "application/json;as=Table,application/yaml;as=Table,application/vnd.kubernetes.protobuf;as=Table"},
		{"text/* is plain text", []string{"text/*"}, "text/plain"},
		{"weights order", []string{"application/json;q=0.1, application/yaml;q=0.9"}, "application/yaml,application/json"},
		{"the order of equal weights stays", []string{"application/yaml;q=0.5,application/json;q=0.5"}, "application/yaml,application/json"},
		{"a type goes before a range", []string{"*/*,application/*,application/yaml;q=1"}, "application/yaml," + all + ",*/*"},
		{"weight 0 refuses a type", []string{"application/json;q=0,application/yaml"}, "application/yaml"},
		{"weight 0 is taken from a range", []string{"application/*,application/json;q=0.0"}, "application/yaml,application/vnd.kubernetes.protobuf"},
		{"and from */*", []string{"*/*,application/*;q=0"}, "text/plain"},
		{"*/* at weight 0 leaves what is named", []string{"application/yaml,*/*;q=0"}, "application/yaml"},
		{"a header that refuses everything accepts nothing", []string{"application/json;q=0"}, none},
		{"several headers are one", []string{"text/html", "application/json"}, "text/html,application/json"},
		{"OpenAPI's media type stays", []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf;q=0.9, application/json;q=0.5"}, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf,application/json"},
		{"an empty clause is left out", []string{"application/json;q=0.5,,"}, "application/json"},
		{"a weight that is no number counts as 1", []string{"application/json;q=x"}, "application/json"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			got := filtered(t, "Accept", tc.in...)
			if len(got) != 1 || got[0] != tc.want {
				t.Errorf("Accept = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheWorkForAHeaderGrowsWithItsLength(t *testing.T) {
	const ranges, refused = 125_000, 83_000 // 1 MiB, the limit of a request's headers
	header := strings.Repeat("*/*,", ranges) + strings.Repeat("a;q=0,", refused)
	calls := 0
	rewritten := rewriteAccept(header, func(mediaRange, name string) bool {
		if calls++; calls > len(offered)*(ranges+refused) {
			t.Fatal("a clause is compared with other clauses")
		}
		return matches(mediaRange, name)
	})
	if got, want := strings.Count(rewritten, ","), len(offered)*ranges-1; got != want {
		t.Errorf("%d commas in the rewritten header, want %d", got, want)
	}
	parameters := "application/yaml;q=0.5" + strings.Repeat(";a", 50_000)
	if n := testing.AllocsPerRun(1, func() { rewriteAccept(parameters, matches) }); n > 1000 {
		t.Errorf("%v allocations for a clause with 50,000 parameters: each copies those before", n)
	}
}

func TestContentTypeIsInLowerCase(t *testing.T) {
	for in, want := range map[string]string{
		"application/json":                      "application/json",
		"Application/JSON; Charset=UTF-8":       "application/json; Charset=UTF-8",
		"APPLICATION/Merge-Patch+JSON":          "application/merge-patch+json",
		"application/json;stream=watch;Other=X": "application/json;stream=watch;Other=X",
	} {
		if got := filtered(t, "Content-Type", in); len(got) != 1 || got[0] != want {
			t.Errorf("Content-Type %q became %q, want %q", in, got, want)
		}
	}
}

func TestAPlainRequestCostsNoAllocation(t *testing.T) {
	handler := Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if n := testing.AllocsPerRun(100, func() { handler.ServeHTTP(w, req) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestAProxiedRequestHasTheHeadersThatTheClientHasSent(t *testing.T) {
	const sent, own = "Image/*, application/json;q=0.1", "application/json"
	translate := func(header string) func(http.Header) {
		return func(h http.Header) { h.Set("Accept", header) }
	}
	for _, test := range []struct {
		rule    string
		accept  []string
		proxied bool
		between func(http.Header) // what filters between do
		want    []string
	}{
		{"a rewritten header is restored", []string{sent}, true, nil, []string{sent}},
		{"several headers stay several", []string{sent, "text/html"}, true, nil, []string{sent, "text/html"}},
		{"a plain header stays", []string{own}, true, nil, []string{own}},
		{"no header stays none", nil, true, nil, nil},
		{"a header that a filter has translated stays translated", []string{sent}, true, translate("text/plain"), []string{"text/plain"}},
		{"a request that is not proxied keeps the rewritten header", []string{sent}, false, nil, []string{own}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var got http.Header
			inner := original.Restore(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.Header }), func(*http.Request) bool { return test.proxied })
			handler := Filter(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				req.Header.Del("Authorization") // authentication does
				if test.between != nil {
					test.between(req.Header)
				}
				inner.ServeHTTP(w, req)
			}))
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			if test.accept != nil {
				req.Header["Accept"] = test.accept
			}
			req.Header.Set("Content-Type", "Text/PLAIN")
			req.Header.Set("Authorization", "Bearer secret")
			handler.ServeHTTP(httptest.NewRecorder(), req)
			if !slices.Equal(got["Accept"], test.want) {
				t.Errorf("Accept = %q, want %q", got["Accept"], test.want)
			}
			if contentType := got.Get("Content-Type"); (contentType == "Text/PLAIN") != test.proxied {
				t.Errorf("Content-Type = %q", contentType)
			}
			if got.Get("Authorization") != "" {
				t.Error("a header that a filter has removed is there again")
			}
		})
	}
}
