package tolerance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// send returns what the handler behind the filter sees.
func send(t *testing.T, method, contentType, query, body string) (string, string) {
	t.Helper()
	var gotQuery, gotBody string
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		read, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		gotQuery, gotBody = req.URL.RawQuery, string(read)
	}), 100)
	req := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/n/configmaps/c?"+query, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n"}
	handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(request.WithRequestInfo(req.Context(), info)))
	return gotQuery, gotBody
}

func TestDryRunWithoutValueIsNone(t *testing.T) {
	for query, want := range map[string]string{
		"dryRun":           "",
		"dryRun=":          "",
		"dryRun&pretty":    "pretty=",
		"dryRun=All":       "dryRun=All",
		"dryRun=&dryRun=x": "dryRun=&dryRun=x",
		"limit=5":          "limit=5",
	} {
		if got, _ := send(t, http.MethodPost, "application/json", query, "{}"); got != want {
			t.Errorf("%q became %q, want %q", query, got, want)
		}
	}
}

func TestApplyIsNamedByItsPath(t *testing.T) {
	const apply = "application/apply-patch+yaml"
	for name, test := range map[string]struct{ method, contentType, body, want string }{
		"a minimal body gets the name":        {http.MethodPatch, apply, "apiVersion: v1\nkind: ConfigMap\n", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: c\n"},
		"a JSON body, too":                    {http.MethodPatch, apply, `{"kind": "ConfigMap", "metadata": null}`, `{"kind": "ConfigMap", "metadata": {name: c}}` + "\n"},
		"an empty name is none":               {http.MethodPatch, apply, `{"metadata": {"name": ""}}`, `{"metadata": {"name": "c"}}` + "\n"},
		"what is given twice stays twice":     {http.MethodPatch, apply, "data: {a: b}\ndata: {a: c, a: d}\n", "data: {a: b}\ndata: {a: c, a: d}\nmetadata:\n    name: c\n"},
		"values stay as they are written":     {http.MethodPatch, apply, "a: yes\nb: 9007199254740993\nc: 1e3\nd: 0x1F\ne: \"no\"\n", "a: yes\nb: 9007199254740993\nc: 1e3\nd: 0x1F\ne: \"no\"\nmetadata:\n    name: c\n"},
		"other metadata stays":                {http.MethodPatch, apply, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata": {"labels": {"a": "b"}, name: c}}` + "\n"},
		"a name of a wrong type, too":         {http.MethodPatch, apply, `{"metadata":{"name":{}}}`, `{"metadata":{"name":{}}}`},
		"a given name stays, right or wrong":  {http.MethodPatch, apply, `{"metadata":{"name":"d"}}`, `{"metadata":{"name":"d"}}`},
		"what is no object is the handler's":  {http.MethodPatch, apply, `[1]`, `[1]`},
		"metadata of a wrong type, too":       {http.MethodPatch, apply, `{"metadata":1}`, `{"metadata":1}`},
		"so is what does not parse":           {http.MethodPatch, apply, "a: b: c", "a: b: c"},
		"a body over the limit stays over it": {http.MethodPatch, apply, strings.Repeat("x", 150), strings.Repeat("x", 101)},
		"other patches are left alone":        {http.MethodPatch, "application/merge-patch+json", `{}`, `{}`},
		"other verbs are left alone":          {http.MethodPut, apply, `{}`, `{}`},
	} {
		if _, got := send(t, test.method, test.contentType, "", test.body); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
