package bodycheck

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
)

// warnings records what a client would be warned of.
type warnings []string

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestUnknownFieldsOfApplyFollowTheFieldValidation(t *testing.T) {
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c","labels":{"any":"key"}},` +
		`"spec":{"bogus":1,"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}},{"name":"b","imagee":"x","ports":[{"containerPort":1}]}]}}},"more":{"a.b":1}}`
	const pruned = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"any":"key"},"name":"c"},` +
		`"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}},{"name":"b","ports":[{"containerPort":1}]}]}}}}`
	unknown := []string{`unknown field "more"`, `unknown field "spec.bogus"`, `unknown field "spec.template.spec.containers[1].imagee"`}
	const known = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  creationTimestamp: null\ndata: {a: b, c: d}\n"
	for _, test := range []struct {
		rule, query, body string
		code              int
		want              string // the handler's body, or the message
		warnings          []string
	}{
		{"Strict refuses them and names them all", "fieldValidation=Strict", deployment, 400, strings.Join(unknown, ", "), nil},
		{"and adds Kubernetes' text", "fieldValidation=Strict", deployment, 400, `imagee" (.more: field not declared in schema, .spec.bogus: field not declared in schema, .spec.template.spec.containers[1].imagee: field not declared in schema)`, nil},
		{"Warn drops them with a warning for each", "fieldValidation=Warn", deployment, 200, pruned, unknown},
		{"Warn is the default", "", deployment, 200, pruned, unknown},
		{"Ignore drops them", "fieldValidation=Ignore", deployment, 200, pruned, nil},
		{
			"an integer that its field cannot hold is refused", "fieldValidation=Ignore", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":4294967297,"bogus":1}}`,
			400, "spec.replicas: Invalid value: 4294967297: must fit in 32 bits", nil,
		},
		{
			"so is one beyond the largest", "", `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":36893488147419103233}}`,
			400, "spec.replicas: Invalid value: 3.6893488147419103e+19: must fit in 32 bits", nil,
		},
		{
			"Strict names duplicate fields, too", "fieldValidation=Strict", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c"},"spec":{"replicas":1,"replicas":2,"bogus":1}}`,
			400, `strict decoding error: duplicate field "spec.replicas", unknown field "spec.bogus"`, nil,
		},
		{
			"escapes of JSON that YAML does not have are no duplicates", "", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c","annotations":{"a":"\ud83d\ude00"}},"bogus":1}`,
			200, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"a":"😀"},"name":"c"}}`, []string{`unknown field "bogus"`},
		},
		{
			"Warn warns of duplicate fields in YAML, too", "", "apiVersion: apps/v1\nkind: Deployment\nbogus: 1\nspec:\n  replicas: 1\n  replicas: 2\n",
			200, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c"},"spec":{"replicas":2}}`,
			[]string{`yaml: unmarshal errors: line 6: key "replicas" already set in map`, `unknown field "bogus"`},
		},
		{
			"Warn warns of each duplicate field in YAML", "", "apiVersion: apps/v1\nkind: Deployment\nbogus: 1\nspec:\n  replicas: 1\n  replicas: 2\n  paused: true\n  paused: true\n",
			200, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c"},"spec":{"paused":true,"replicas":2}}`,
			[]string{`yaml: unmarshal errors: line 6: key "replicas" already set in map`, `yaml: unmarshal errors: line 8: key "paused" already set in map`, `unknown field "bogus"`},
		},
		{"a body without any stays as it is written", "fieldValidation=Strict", known, 200, known, nil},
		{"a body of an unknown kind is left to the handler", "", `{"apiVersion":"v1","kind":"Bogus","metadata":{"name":"c"},"a":1}`, 200, `{"apiVersion":"v1","kind":"Bogus","metadata":{"name":"c"},"a":1}`, nil},
		{"a list is left to the handler", "", `[1]`, 200, `[1]`, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/apis/apps/v1/namespaces/n/deployments/c?"+test.query, strings.NewReader(test.body))
			req.Header.Set("Content-Type", "application/apply-patch+yaml")
			info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIGroup: "apps", APIVersion: "v1", Resource: "deployments"}
			code, got, warned := filtered(t, Checks(nil, clientgoscheme.Scheme, nil), req, info)
			if code != test.code || test.code == 200 && got != test.want || !strings.Contains(got, test.want) {
				t.Errorf("got %d and\n%s\nwant %d and\n%s", code, got, test.code, test.want)
			}
			if !slices.Equal(warned, test.warnings) {
				t.Errorf("warnings %q, want %q", warned, test.warnings)
			}
		})
	}
}

func TestAsManyUnknownFieldsOfAnApplyAreReportedAsOfOtherBodies(t *testing.T) {
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap"`)
	for i := range 150 {
		body = fmt.Appendf(body, `,"a%d":1`, i)
	}
	body = append(body, '}')
	decoded, err := kjson.UnmarshalStrict(body, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"Strict", "Warn"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/?fieldValidation="+level, bytes.NewReader(body))
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
		info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIVersion: "v1", Resource: "configmaps"}
		_, got, warned := filtered(t, Checks(nil, clientgoscheme.Scheme, nil), req, info)
		reported := len(warned)
		if level == "Strict" {
			reported = strings.Count(got, "unknown field")
		}
		if reported != len(decoded) {
			t.Errorf("%s reports %d fields, and the decoder %d", level, reported, len(decoded))
		}
	}
}

func TestUnknownFieldsOfApplyFollowTheFieldValidationForTheServersOwnResources(t *testing.T) {
	for _, test := range []struct {
		resource             schema.GroupVersionResource
		body, pruned, absent string
	}{
		{
			schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"c"},"spec":{"bogus":1,"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"bogus":1}}}]}}`,
			`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"c"},"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{}}}]}}`,
			`unknown field "spec.bogus", unknown field "spec.versions[0].schema.openAPIV3Schema.bogus"`,
		},
		{
			schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
			`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"c"},"spec":{"bogus":1,"service":{"name":"s","bogus":1}}}`,
			`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"c"},"spec":{"service":{"name":"s"}}}`,
			`unknown field "spec.bogus", unknown field "spec.service.bogus"`,
		},
	} {
		for level, want := range map[string]struct {
			code     int
			text     string
			warnings []string
		}{
			"Strict": {400, "strict decoding error: " + test.absent, nil},
			"Warn":   {200, test.pruned, strings.Split(test.absent, ", ")},
			"Ignore": {200, test.pruned, nil},
		} {
			t.Run(test.resource.Resource+" "+level, func(t *testing.T) {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/?fieldValidation="+level, strings.NewReader(test.body))
				req.Header.Set("Content-Type", "application/apply-patch+yaml")
				info := &request.RequestInfo{IsResourceRequest: true, Name: "c", APIGroup: test.resource.Group, APIVersion: test.resource.Version, Resource: test.resource.Resource}
				code, got, warned := filtered(t, Checks(nil, clientgoscheme.Scheme, nil), req, info)
				if code != want.code || !strings.Contains(got, want.text) || !slices.Equal(warned, want.warnings) {
					t.Errorf("got %d, warnings %q and\n%s\nwant %d, %q and\n%s", code, warned, got, want.code, want.warnings, want.text)
				}
			})
		}
	}
}

// filtered returns the answer to a request that passes the checks: the code, the body
// that the handler gets or the text of the error, without escapes, and the warnings.
func filtered(t *testing.T, checks []Check, req *http.Request, info *request.RequestInfo) (int, string, warnings) {
	t.Helper()
	var got string
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		read, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		got = string(read)
	}), clientgoscheme.Codecs.WithoutConversion(), checks, 1<<20, nil)
	var warned warnings
	ctx := warning.WithWarningRecorder(req.Context(), &warned)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req.WithContext(request.WithRequestInfo(ctx, info)))
	if answer.Code != http.StatusOK {
		got = strings.ReplaceAll(answer.Body.String(), `\"`, `"`)
	}
	return answer.Code, got, warned
}
