package alias

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"go.yaml.in/yaml/v3"
)

const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func TestSchemaExtensionsInJSON(t *testing.T) {
	testSchemaExtensions(t, []schemaCase{
		{
			name: "extensions in JSON",
			in:   `{"schema": {"type":"array","x-svc-list-type":"map", "x-svc-list-map-keys" : ["a"]}}`,
			want: `{"schema": {"type":"array","x-kubernetes-list-type":"map", "x-kubernetes-list-map-keys" : ["a"]}}`,
		},
		{
			name: "text that contains an extension stays",
			in:   `{"description":"x-svc-list-type","x-svc-map-type":"atomic"}`,
			want: `{"description":"x-svc-list-type","x-kubernetes-map-type":"atomic"}`,
		},
		{
			name: "a property of an extension's name stays",
			in:   `{"properties":{"x-svc-list-type":{"type":"array","x-svc-list-type":"set"},"properties":{"x-svc-map-type":"atomic"}}}`,
			want: `{"properties":{"x-svc-list-type":{"type":"array","x-kubernetes-list-type":"set"},"properties":{"x-kubernetes-map-type":"atomic"}}}`,
		},
		{
			name: "unknown extensions stay",
			in:   `{"x-svc-colour":"red"}`,
			want: `{"x-svc-colour":"red"}`,
		},
		{
			name: "extensions after arrays and in arrays",
			in:   `[1,[2,"x"],{"a":[true,null],"x-svc-int-or-string":true,"b":[{"x-svc-int-or-string":true}]}]`,
			want: `[1,[2,"x"],{"a":[true,null],"x-kubernetes-int-or-string":true,"b":[{"x-kubernetes-int-or-string":true}]}]`,
		},
		{
			name: "escaped text before", in: `{"é\"\u00e9":"ü","x-svc-map-type":"atomic"}`,
			want: `{"é\"\u00e9":"ü","x-kubernetes-map-type":"atomic"}`,
		},
		{
			name: "broken JSON stays after the break",
			in:   `{"x-svc-map-type":"atomic",]"x-svc-map-type":1`,
			want: `{"x-kubernetes-map-type":"atomic",]"x-svc-map-type":1`,
		},
		{
			name: "a JSON patch's path", method: http.MethodPatch, contentType: "application/json-patch+json",
			in:   `[{"op":"add","path":"/spec/x-svc-map-type","value":"x-svc-map-type"},{"op":"move","from":"/a/x-svc-map-type","path":"/b"}]`,
			want: `[{"op":"add","path":"/spec/x-kubernetes-map-type","value":"x-svc-map-type"},{"op":"move","from":"/a/x-kubernetes-map-type","path":"/b"}]`,
		},
	})
}

func TestSchemaExtensionsInYAML(t *testing.T) {
	testSchemaExtensions(t, []schemaCase{
		{
			name: "extensions in YAML", method: http.MethodPatch, contentType: "application/apply-patch+yaml",
			in:   "# für x-svc-list-type: alle\nschéma: {é: 1, x-svc-list-type: set}\n\"x-svc-map-type\": 'x-svc-map-type'\n'x-svc-int-or-string': true\n",
			want: "# für x-svc-list-type: alle\nschéma: {é: 1, x-kubernetes-list-type: set}\n\"x-kubernetes-map-type\": 'x-svc-map-type'\n'x-kubernetes-int-or-string': true\n",
		},
		{
			name: "text in YAML stays", contentType: "application/yaml",
			in:   "description: |\n  x-svc-list-type: set\nproperties:\n  x-svc-list-type:\n    - x-svc-list-type: set\n",
			want: "description: |\n  x-svc-list-type: set\nproperties:\n  x-svc-list-type:\n    - x-kubernetes-list-type: set\n",
		},
		{
			name: "JSON sent as YAML", contentType: "application/apply-patch+yaml", method: http.MethodPatch,
			in:   `{"x-svc-list-type":"set"}`,
			want: `{"x-kubernetes-list-type":"set"}`,
		},
		{
			name: "broken YAML stays", contentType: "application/yaml",
			in: "x-svc-list-type: [", want: "x-svc-list-type: [",
		},
	})
}

func TestOnlySchemasAreRewritten(t *testing.T) {
	testSchemaExtensions(t, []schemaCase{
		{
			name: "the group domain's path", path: "/apis/apiextensions.corp.example/v1/customresourcedefinitions",
			in: `{"x-svc-list-type":"set"}`, want: `{"x-kubernetes-list-type":"set"}`,
		},
		{
			name: "other kinds stay", path: "/api/v1/namespaces/default/configmaps",
			in: `{"x-svc-list-type":"set"}`, want: `{"x-svc-list-type":"set"}`,
		},
		{
			name: "a body too large stays",
			in:   `{"x-svc-list-type":"` + strings.Repeat("s", maxBody) + `"}`,
			want: `{"x-svc-list-type":"` + strings.Repeat("s", maxBody) + `"}`,
		},
	})
}

// schemaCase is a request whose body in becomes want. By default it is a POST of JSON to
// the custom resource definitions.
type schemaCase struct {
	name, method, path, contentType, in, want string
}

func testSchemaExtensions(t *testing.T, cases []schemaCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.path == "" {
				tc.path = crds
			}
			if tc.contentType == "" {
				tc.contentType = "application/json"
			}
			// The size of a chunked body is not known in advance.
			for name, body := range map[string]io.Reader{"with length": strings.NewReader(tc.in), "chunked": io.MultiReader(strings.NewReader(tc.in))} {
				got, err := send(tc.method, tc.path, tc.contentType, body)
				if err != nil {
					t.Fatal(err)
				}
				if got != tc.want {
					t.Errorf("%s: body = %.200s\nwant %.200s", name, got, tc.want)
				}
			}
		})
	}
}

func TestATruncatedBodyIsAnError(t *testing.T) {
	broken := errors.New("connection lost")
	got, err := send(http.MethodPost, crds, "application/json", io.MultiReader(strings.NewReader(`{"x-svc-`), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || got != `{"x-svc-` {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestALineOfYAMLEndsWhereTheParserEndsIt(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\r", "\u0085", "\u2028", "\u2029"} {
		in := strings.Join([]string{"a: 1", "b:", "  x-svc-list-type: set", "'x-svc-map-type': granular", ""}, end)
		got, err := send(http.MethodPost, crds, "application/yaml", strings.NewReader(in))
		if want := strings.ReplaceAll(in, "x-svc-", "x-kubernetes-"); err != nil || got != want {
			t.Errorf("lines that end with %q: got %q, %v\nwant %q", end, got, err, want)
		}
	}
}

// send returns the body that the filtered handler reads.
func send(method, path, contentType string, body io.Reader) (got string, err error) {
	h := Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var b []byte
		b, err = io.ReadAll(r.Body)
		got = string(b)
	}), "corp.example", both)
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", contentType)
	h.ServeHTTP(httptest.NewRecorder(), r)
	return got, err
}

func FuzzSchemaExtensions(f *testing.F) {
	f.Add([]byte(`{"properties":{"x-svc-list-type":{"x-svc-list-type":"set"}}}`))
	f.Add([]byte("a:\n  x-svc-list-type: set\r\n\tb: {'x-svc-map-type': &x y, c: *x}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, find := range []func([]byte, string) []int{inJSON, inYAML} {
			got := replace(bytes.Clone(body), find(body, svcExtension), svcExtension, kubeExtension)
			if back := bytes.ReplaceAll(got, []byte(kubeExtension), []byte(svcExtension)); !bytes.Contains(body, []byte(kubeExtension)) && !bytes.Equal(back, body) {
				t.Errorf("%q became %q: more than a prefix changed", body, got)
			}
		}
	})
}

func TestTheCharactersOfALineOfYAMLAreCountedOnce(t *testing.T) {
	body := []byte("{x-svc-list-type: set, x-svc-map-type: atomic}")
	position := cursor{body: body, lines: lineStarts(body)}
	key := func(name string) *yaml.Node {
		return &yaml.Node{Line: 1, Column: strings.Index(string(body), name) + 1, Value: name}
	}
	first, second := key("x-svc-list-type"), key("x-svc-map-type")
	if at, err := position.offset(first); err != nil || at != 1 {
		t.Fatalf("the first key is at %d, %v", at, err)
	}
	copy(body, "é") // one character where there were two: a second count would end elsewhere
	if at, err := position.offset(second); err != nil || at != second.Column-1 {
		t.Errorf("the second key is at %d, %v, want %d", at, err, second.Column-1)
	}
	copy(body, "{x")
	if at, err := position.offset(first); err != nil || at != 1 {
		t.Errorf("an earlier key is at %d, %v", at, err)
	}
}
