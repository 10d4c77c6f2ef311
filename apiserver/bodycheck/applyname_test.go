package bodycheck

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// send returns the body that the handler behind the filter reads, and the length
// that it is announced.
func send(t *testing.T, method, contentType, body string) (string, int64) {
	t.Helper()
	var got string
	var length int64
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		read, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		got, length = string(read), req.ContentLength
	}), clientgoscheme.Codecs.WithoutConversion(), Checks(nil, clientgoscheme.Scheme, nil), 100, nil)
	req := httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/n/configmaps/c", strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIVersion: "v1"}
	handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(request.WithRequestInfo(req.Context(), info)))
	return got, length
}

func TestApplyIsNamedByItsPath(t *testing.T) {
	const apply = "application/apply-patch+yaml"
	for name, test := range map[string]struct{ method, contentType, body, want string }{
		"a minimal body gets the name":         {http.MethodPatch, apply, "apiVersion: v1\nkind: ConfigMap\n", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n    name: c\n"},
		"a JSON body gets the name":            {http.MethodPatch, apply, `{"kind": "ConfigMap", "metadata": null}`, `{"kind": "ConfigMap", "metadata": {name: c}}` + "\n"},
		"an empty name is replaced":            {http.MethodPatch, apply, `{"metadata": {"name": ""}}`, `{"metadata": {"name": "c"}}` + "\n"},
		"duplicate fields stay duplicate":      {http.MethodPatch, apply, "data: {a: b}\ndata: {a: c, a: d}\n", "data: {a: b}\ndata: {a: c, a: d}\nmetadata:\n    name: c\n"},
		"values stay as they are written":      {http.MethodPatch, apply, "a: yes\nb: 9007199254740993\nc: 1e3\nd: 0x1F\ne: \"no\"\n", "a: yes\nb: 9007199254740993\nc: 1e3\nd: 0x1F\ne: \"no\"\nmetadata:\n    name: c\n"},
		"other metadata stays":                 {http.MethodPatch, apply, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata": {"labels": {"a": "b"}, name: c}}` + "\n"},
		"a name of a wrong type stays":         {http.MethodPatch, apply, `{"metadata":{"name":{}}}`, `{"metadata":{"name":{}}}`},
		"a given name stays, right or wrong":   {http.MethodPatch, apply, `{"metadata":{"name":"d"}}`, `{"metadata":{"name":"d"}}`},
		"a list is left to the handler":        {http.MethodPatch, apply, `[1]`, `[1]`},
		"metadata of a wrong type stays":       {http.MethodPatch, apply, `{"metadata":1}`, `{"metadata":1}`},
		"invalid YAML is left to the handler":  {http.MethodPatch, apply, "a: b: c", "a: b: c"},
		"a body over the limit is not changed": {http.MethodPatch, apply, strings.Repeat("x", 150), strings.Repeat("x", 150)},
		"other patches are left alone":         {http.MethodPatch, "application/merge-patch+json", `{}`, `{}`},
		"other verbs are left alone":           {http.MethodPut, apply, `{}`, `{}`},
	} {
		got, length := send(t, test.method, test.contentType, test.body)
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
		if length != int64(len(got)) {
			t.Errorf("%s: %d bytes are announced, %d follow", name, length, len(got))
		}
	}
}
