package bodycheck

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// widgetDefinition defines widgets whose specs have the fields.
func widgetDefinition(fields ...string) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for _, field := range fields {
		spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "integer"}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		}}},
	}
}

// applied is what a check made of a body.
type applied struct {
	code     int
	body     string // of the handler, or the message
	warnings []string
}

func applyWidget(t *testing.T, check Check, version, query, body string) applied {
	t.Helper()
	var got applied
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		read, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		got.body = string(read)
	}), clientgoscheme.Codecs.WithoutConversion(), []Check{check}, 1<<20, nil)
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/apis/example.com/"+version+"/widgets/a?"+query, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	info := &request.RequestInfo{IsResourceRequest: true, Name: "a", APIGroup: "example.com", APIVersion: version, Resource: "widgets"}
	var warned warnings
	ctx := warning.WithWarningRecorder(request.WithRequestInfo(req.Context(), info), &warned)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req.WithContext(ctx))
	if got.code, got.warnings = w.Code, warned; w.Code != http.StatusOK {
		got.body = strings.ReplaceAll(w.Body.String(), `\"`, `"`)
	}
	return got
}

func TestUnknownFieldsOfAppliedCustomResourcesFollowTheFieldValidation(t *testing.T) {
	const body = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","bogus":1},"spec":{"size":1,"sise":2}}`
	const pruned = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}`
	const known = "apiVersion: example.com/v1\nkind: Widget\nspec: {size: 1}\n"
	unknown := []string{`unknown field "metadata.bogus"`, `unknown field "spec.sise"`}
	for _, test := range []struct {
		rule, version, query, body string
		code                       int
		want                       string
		warnings                   []string
	}{
		{"Strict refuses them and names them all", "v1", "fieldValidation=Strict", body, 400, "strict decoding error: " + strings.Join(unknown, ", "), nil},
		{"Warn drops them with a warning for each", "v1", "fieldValidation=Warn", body, 200, pruned, unknown},
		{
			"Strict names duplicate fields, too", "v1", "fieldValidation=Strict", `{"apiVersion":"example.com/v1","spec":{"size":1,"size":2,"sise":2}}`, 400,
			`strict decoding error: duplicate field "spec.size", unknown field "spec.sise"`, nil,
		},
		{"Warn is the default", "v1", "", body, 200, pruned, unknown},
		{"Ignore drops them", "v1", "fieldValidation=Ignore", body, 200, pruned, nil},
		{"a body without any stays as it is written", "v1", "fieldValidation=Strict", known, 200, known, nil},
		{"a version that does not exist is left to the handler", "v2", "", body, 200, body, nil},
		{"a list is left to the handler", "v1", "", `[1]`, 200, `[1]`, nil},
	} {
		t.Run(test.rule, func(t *testing.T) {
			definitions := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if err := definitions.Add(widgetDefinition("size")); err != nil {
				t.Fatal(err)
			}
			got := applyWidget(t, CustomApplyFields(apiextensionslisters.NewCustomResourceDefinitionLister(definitions)), test.version, test.query, test.body)
			if got.code != test.code || !strings.Contains(got.body, test.want) || !slices.Equal(got.warnings, test.warnings) {
				t.Errorf("got %+v, want %d %s %q", got, test.code, test.want, test.warnings)
			}
		})
	}
}

func TestAnAppliedCustomResourceIsComparedWithTheNewestSchema(t *testing.T) {
	const body = `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"color":1}}`
	definitions := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	check := CustomApplyFields(apiextensionslisters.NewCustomResourceDefinitionLister(definitions))
	if got := applyWidget(t, check, "v1", "", body); got.body != body {
		t.Errorf("without a definition: got %+v", got)
	}
	for _, step := range []struct {
		fields   []string
		warnings int
	}{{[]string{"size"}, 1}, {[]string{"size", "color"}, 0}} {
		if err := definitions.Update(widgetDefinition(step.fields...)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, from the cache
			if got := applyWidget(t, check, "v1", "", body); len(got.warnings) != step.warnings {
				t.Errorf("%v: got %+v", step.fields, got)
			}
		}
	}
	preserving := widgetDefinition()
	preserving.Spec.PreserveUnknownFields = true
	if err := definitions.Update(preserving); err != nil {
		t.Fatal(err)
	}
	if got := applyWidget(t, check, "v1", "", body); got.body != body || len(got.warnings) > 0 {
		t.Errorf("unknown fields are preserved: got %+v", got)
	}
}
